// Snapshots: what the network makes of a few images at a moment of the training. They are fetched when they are shown,
// and the last ones are kept. All panels of snapshots show the same run and moment, where it has what they show.
'use strict';

const kKept = 24;             // snapshots in memory
const kept = new Map();       // key -> snapshot, the one used last at the end
const underWay = new Set();   // keys of those asked for
const retryAt = new Map();    // key -> when to ask again for one that was not to be had

const keyOf = (rec, name) => [rec.id, rec.generation, name].join('\n');

// The name of the snapshot to show: the chosen one, else the newest.
function wantedName(rec) {
  const name = choice.moment.get(rec.id);
  return rec.snapshots.includes(name) ? name : rec.snapshots.at(-1);
}

// The snapshot to show of a run. Until it has come, the one shown before.
function snapshotOf(id) {
  const rec = record(id), name = wantedName(rec);
  if (!name) return null;
  const key = keyOf(rec, name), snapshot = kept.get(key);
  if (!snapshot) {
    fetchSnapshot(rec, name, key);
    return rec.shown?.generation === rec.generation ? rec.shown.snapshot : null;
  }
  kept.delete(key);
  kept.set(key, snapshot);
  rec.shown = { snapshot, generation: rec.generation };
  return snapshot;
}

async function fetchSnapshot(rec, name, key) {
  if (underWay.has(key) || retryAt.get(key) > Date.now()) return;
  underWay.add(key);
  try {
    kept.set(key, { ...fields(await source.snapshot(rec.id, name)), name });
    while (kept.size > kKept) kept.delete(kept.keys().next().value);
  } catch (error) {
    const wait = error.status ? 30000 : 3000;
    retryAt.set(key, Date.now() + wait);
    if (source.live) setTimeout(drawSnapshots, wait + 100);
  }
  underWay.delete(key);
  drawSnapshots();
}

function drawSnapshots() {
  drawPanels(panels.filter(panel => panel.snapshot));
}

// Shows the snapshot at this place of a run's list. At the newest it goes on to newer ones.
function setMoment(id, index) {
  const names = record(id).snapshots;
  choice.look = id;
  if (index >= names.length - 1) choice.moment.delete(id);
  else choice.moment.set(id, names[Math.max(0, index)]);
  writeAddress();
  drawSnapshots();
}
function moveMoment(by) {
  const panel = panels.find(p => p.snapshot && p.filled);
  if (!panel) return;
  const rec = record(panel.run());
  setMoment(rec.id, rec.snapshots.indexOf(wantedName(rec)) + by);
}
function look(id) {
  choice.look = id;
  writeAddress();
  drawSnapshots();
}

// The slider over the snapshots of a run.
function momentSlider(key, title) {
  const input = el('input', { type: 'range', min: 0, step: 1, 'aria-label': 'Snapshot: ' + title });
  const output = el('output');
  let id = null;
  input.oninput = () => setMoment(id, Number(input.value));
  key.append(el('span', { className: 'moment' }, input, output));
  return run => {
    id = run;
    const rec = record(id), name = wantedName(rec) || '', at = rec.snapshots.indexOf(name);
    input.max = Math.max(0, rec.snapshots.length - 1);
    input.value = at;
    input.hidden = rec.snapshots.length < 2;
    output.textContent = name.replace(/-0*/, ' ');              // epoch-0012
    input.setAttribute('aria-valuetext', output.textContent);
  };
}

// spec: title, heading(snapshot) if it depends on the snapshot, size, has(snapshot), which says whether there is
// something to show, draw(snapshot), which gives the elements; themed: they are to be made anew for other colours.
function snapshotPanel(spec) {
  const body = el('div', { className: 'snapshot' });
  const panel = { ...frame(spec.title, spec.size || 'half', body), snapshot: true };
  const pick = picker(panel.key, 'Run', look), slide = momentSlider(panel.key, spec.title);
  let ids = [], id = null, snapshot = null, drawn = '';

  panel.run = () => id;

  panel.gather = () => {
    const has = run => { const s = snapshotOf(run); return Boolean(s && spec.has(s)); };
    ids = choice.chosen.filter(has);
    id = ids.includes(choice.look) ? choice.look : ids[0] ?? null;
    snapshot = id ? snapshotOf(id) : null;
    return Boolean(snapshot);
  };

  panel.draw = () => {
    if (!snapshot) return;
    pick(ids, id);
    slide(id);
    const rec = record(id), theme = spec.themed ? document.documentElement.dataset.theme + body.clientWidth : '';
    const now = keyOf(rec, snapshot.name) + theme;
    body.classList.toggle('stale', snapshot.name !== wantedName(rec));
    if (now === drawn) return;
    drawn = now;
    if (spec.heading) panel.head.textContent = spec.heading(snapshot);
    body.replaceChildren(...spec.draw(snapshot, body.clientWidth));
  };
  panel.resize = panel.draw;
  return panel;
}

// The name of a class.
function className(snapshot, label) {
  if (!Number.isInteger(label)) return '?';
  return String(list(snapshot.classes)[label] ?? label);
}

// An image of the snapshot, as large as its box. What cannot be drawn stays black.
function picture(snapshot, index, label) {
  const canvas = el('canvas', { width: 1, height: 1, role: 'img', 'aria-label': label });
  const { width, height, channels, pixels } = fields(list(snapshot.images)[index]);
  const side = n => Number.isInteger(n) && n > 0 && n <= 1024;
  if (!side(width) || !side(height) || typeof pixels !== 'string') return canvas;
  let bytes = '';
  try { bytes = atob(pixels); } catch { return canvas; }
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext('2d'), image = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = bytes.charCodeAt(i * channels + (channels >= 3 ? c : 0));
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
