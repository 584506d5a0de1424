// The list of runs, the chips of the chosen ones, and why runs have failed. Rows are kept and changed in place, so
// that a click or the keyboard's focus is not lost when a run goes on.
'use strict';

const kLogLines = 3;          // shown of a run that has failed
const groups = [['running', 'Running'], ['failed', 'Failed'], ['finished', 'Finished']];
const rows = new Map();       // run -> its row
const headings = new Map();   // state -> the heading of its group
let atRun = null;             // the run that the keyboard is at

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
const stateOf = run => groups.some(([state]) => state === run.state) ? run.state : 'finished';

function subtitle(run) {
  const ranks = run.ranks > 1 ? ' × ' + run.ranks : '';
  return [run.method, run.model, run.data, run.strategy ? run.strategy + ranks : ''].filter(Boolean).join(' · ');
}
function whenText(run) {
  if (run.state === 'running') {
    if (isNumber(run.seconds_left)) return secs(run.seconds_left) + ' left';
    return isNumber(run.epoch) ? 'epoch ' + run.epoch : 'running';
  }
  if (run.state === 'failed') return isNumber(run.epoch) ? 'epoch ' + run.epoch : 'failed';
  return isNumber(run.updated) ? ago(store.now - run.updated) : '';
}
const bestNames = { val: 'validation', knn: 'kNN', test: 'test' };
function bestTitle(run) {
  if (!isNumber(run.best?.top1)) return run.id;
  return `${run.id} · best ${bestNames[run.best.split] || ''} accuracy ${percent(run.best.top1)}`;
}

// The orders of the list: by what, the lowest first, and how it is said in a row.
const accuracyOf = run => run.best?.top1;
const lossOf = run => ['test', 'val', 'train'].map(split => run.results?.[split]?.loss).find(isNumber);
const sorts = {
  newest: { name: 'newest', of: () => 0, say: run => percentOrNothing(accuracyOf(run)) },
  accuracy: { name: 'accuracy', of: run => -accuracyOf(run), say: run => percentOrNothing(accuracyOf(run)) },
  loss: { name: 'loss', of: lossOf, say: run => isNumber(lossOf(run)) ? num(lossOf(run), 4) : '' },
  time: { name: 'time', of: run => run.seconds, say: run => isNumber(run.seconds) ? secs(run.seconds) : '' },
  name: { name: 'name', of: run => nameOf(run.id), say: run => percentOrNothing(accuracyOf(run)) },
};
const percentOrNothing = v => isNumber(v) ? percent(v) : '';

// Runs without a value are last.
function inSortedOrder(runs) {
  const of = sorts[choice.sort].of, known = v => typeof v === 'string' || isNumber(v);
  return [...runs].sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (!known(x) || !known(y)) return known(y) - known(x);
    return typeof x === 'string' ? x.localeCompare(y) : x - y;
  });
}
function sortRuns(sort) {
  choice.sort = sort;
  writeAddress();
  drawList();
}

// A row of the list: { item, button, show(run) }.
function makeRow(id) {
  const box = el('span'), name = el('span', { className: 'name' }), best = el('span', { className: 'best' });
  const sub = el('span', { className: 'sub' }), when = el('span'), done = el('i');
  const bar = el('span', { className: 'bar' }, done);
  const button = el('button', {
    className: 'run', onclick: () => toggle(id), onpointerleave: () => focusRun(null),
    onpointerenter: () => slotOf(id) >= 0 && focusRun(id),
  }, box, name, best, sub, when, bar);
  const show = run => {
    const slot = slotOf(id);
    button.setAttribute('aria-pressed', slot >= 0);
    button.classList.toggle('at', id === atRun);
    button.title = bestTitle(run);
    box.className = slot >= 0 ? 'tag' : 'tag off';
    box.style.cssText = slot >= 0 ? `--c:var(--r${slot})` : '';
    setText(box, slot >= 0 ? letter(id) : '');
    setText(name, nameOf(id));
    setText(best, sorts[choice.sort].say(run));
    setText(sub, subtitle(run));
    setText(when, whenText(run));
    when.className = 'when ' + stateOf(run);
    const share = run.step / (run.epochs * run.steps_per_epoch);
    bar.hidden = run.state !== 'running' || !Number.isFinite(share);
    if (!bar.hidden) done.style.width = 100 * clamp(share, 0, 1) + '%';
  };
  return { item: el('li', {}, button), button, show };
}

// The runs that match the filter, in the order of the list.
function listedRuns() {
  const word = $('filter').value.trim().toLowerCase();
  const match = run => [run.id, run.name, subtitle(run)].join(' ').toLowerCase().includes(word);
  return groups.map(([state]) => inSortedOrder(store.runs).filter(run => stateOf(run) === state && match(run)));
}

let refused = false;          // the reader has tried to choose one more than there are places
function listNote(count) {
  if (count) return refused && slots.every(id => id) ? `${kSlots} runs are chosen; remove one first.` : '';
  return store.runs.length ? 'No run matches.' : 'There are no runs yet.';
}

function drawList() {
  const items = [];
  listedRuns().forEach((runs, i) => {
    if (!runs.length) return;
    const [state, title] = groups[i];
    if (!headings.has(state)) headings.set(state, el('li', { className: 'group' }));
    setText(headings.get(state), `${title} · ${runs.length}`);
    items.push(headings.get(state));
    for (const run of runs) {
      if (!rows.has(run.id)) rows.set(run.id, makeRow(run.id));
      rows.get(run.id).show(run);
      items.push(rows.get(run.id).item);
    }
  });
  const now = $('run-list').children;
  if (now.length !== items.length || items.some((item, i) => item !== now[i])) {
    const focused = document.activeElement;
    $('run-list').replaceChildren(...items);
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  }
  setText($('list-note'), listNote(items.length));
  setText($('runs-button'), `Runs · ${choice.chosen.length}`);
}

// The keyboard goes up and down the list.
function moveList(by) {
  const runs = listedRuns().flat(), at = runs.findIndex(run => run.id === atRun);
  if (!runs.length) return;
  atRun = runs[clamp(at < 0 ? 0 : at + by, 0, runs.length - 1)].id;
  drawList();
  rows.get(atRun).item.scrollIntoView({ block: 'nearest' });
}

// Chips and notices are made anew only when they would differ.
let chipsMade = '', noticesMade = '';
function drawChips() {
  const now = JSON.stringify([slots, choice.chosen.map(nameOf), store.runs.length > 0]);
  if (now === chipsMade) return;
  chipsMade = now;
  const chips = choice.chosen.map(id => {
    const focus = { className: 'chip', onpointerenter: () => focusRun(id), onpointerleave: () => focusRun(null) };
    const label = 'Remove ' + nameOf(id);
    const remove = el('button', { className: 'plain', title: 'Remove', 'aria-label': label }, '×');
    remove.onclick = () => toggle(id);
    return el('span', focus, tag(id), el('b', {}, nameOf(id)), remove);
  });
  const hint = store.runs.length ? 'Choose runs from the list.' : 'There are no runs yet.';
  $('chips').replaceChildren(...(chips.length ? chips : [el('span', { className: 'empty' }, hint)]));
}

function drawNotices() {
  const failed = choice.chosen.map(record).filter(rec => rec.info.state === 'failed');
  const log = rec => list(rec.detail?.log).slice(-kLogLines).map(String).join('\n');
  const where = ({ epoch, step }) => {
    if (!isNumber(step)) return ' failed.';
    return isNumber(epoch) ? ` failed in epoch ${epoch} at step ${num(step)}.` : ` failed at step ${num(step)}.`;
  };
  const now = JSON.stringify(failed.map(rec => [slotOf(rec.id), nameOf(rec.id), where(rec.info), log(rec)]));
  if (now === noticesMade) return;
  noticesMade = now;
  $('notices').replaceChildren(...failed.map(rec => el('div', { className: 'notice' }, tag(rec.id), ' ',
    el('b', {}, nameOf(rec.id)), where(rec.info), log(rec) ? el('pre', {}, log(rec)) : null)));
}

async function toggle(id) {
  const on = slotOf(id) < 0;
  refused = !choose(id, on);
  if (refused) {
    drawList();
    $('list-note').scrollIntoView({ block: 'nearest' });
    return;
  }
  choice.focus = null;
  writeAddress();
  drawList();
  drawChips();
  drawNotices();
  drawAll();
  await poll(true);
}
