// What the reader has chosen. It is kept in the address, so that a link shows the same page.
'use strict';

const kSlots = 8;             // runs at once: more colours cannot be told apart
const kLetters = 'ABCDEFGH';

const choice = {
  chosen: [],                 // ids of the chosen runs, in the order of their letters
  sort: 'newest',             // of the list
  x: 'step', smooth: 0.6, log: true, clip: true, share: false,
  window: null,               // part of the x axis that is shown: [from, to]
  focus: null,                // the run under the pointer; all others are dimmed
  look: null,                 // the run whose snapshots are shown
  moment: new Map(),          // run -> the snapshot that is shown, if it is not the newest
};

const slots = Array(kSlots).fill(null);   // a run keeps its letter and colour while it is chosen
const slotOf = id => slots.indexOf(id);
const letter = id => kLetters[slotOf(id)];
const colour = id => css('--r' + slotOf(id));

// The chosen runs that there are. A run that has vanished keeps its letter as long as no other needs it.
function findChosen() {
  choice.chosen = slots.filter(id => id && record(id).info);
}
function choose(id, on) {
  const at = slotOf(id);
  if (on && at < 0) {
    let free = slots.indexOf(null);
    if (free < 0) free = slots.findIndex(other => !record(other).info);
    if (free < 0) return false;
    slots[free] = id;
  }
  if (!on && at >= 0) slots[at] = null;
  findChosen();
  return true;
}

function writeAddress() {
  const query = new URLSearchParams();
  slots.forEach((id, i) => id && query.set(kLetters[i], id));
  query.set('x', choice.x);
  query.set('smooth', choice.smooth);
  if (choice.sort !== 'newest') query.set('sort', choice.sort);
  for (const name of ['log', 'clip', 'share']) query.set(name, Number(choice[name]));
  if (choice.window) query.set('window', choice.window.map(v => Number(v.toPrecision(6))).join());
  if (choice.look) query.set('look', choice.look);
  if (choice.moment.get(choice.look)) query.set('at', choice.moment.get(choice.look));
  try { history.replaceState(null, '', '#' + query); } catch { /* not allowed for this page */ }
}

// Takes over what the address says; true if it names runs.
function readAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  const named = [...kLetters].some(l => query.has(l));
  if (named) [...kLetters].forEach((l, i) => { slots[i] = query.get(l) || null; });
  if (Object.hasOwn(axes, query.get('x') ?? '')) choice.x = query.get('x');
  if (Object.hasOwn(sorts, query.get('sort') ?? '')) choice.sort = query.get('sort');
  if (query.has('smooth')) choice.smooth = clamp(Number(query.get('smooth')) || 0, 0, 0.98);
  for (const name of ['log', 'clip', 'share']) if (query.has(name)) choice[name] = query.get(name) === '1';
  const part = (query.get('window') || '').split(',').map(Number);
  choice.window = part.length === 2 && part[0] < part[1] ? part : null;
  choice.look = query.get('look') || null;
  choice.moment.clear();
  if (choice.look && query.get('at')) choice.moment.set(choice.look, query.get('at'));
  return named;
}
