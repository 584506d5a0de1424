// What is known about each run: its line in the list, its settings, its lines of metrics by split, and the names of
// its snapshots.
'use strict';

const store = { runs: [], byId: new Map(), root: '', now: 0 };

function record(id) {
  if (!store.byId.has(id)) {
    store.byId.set(id, { id, info: null, detail: null, snapshots: [], asked: '', complete: false });
    forget(store.byId.get(id));
  }
  return store.byId.get(id);
}

// The run starts from nothing.
function forget(rec) {
  rec.next = 0;
  rec.splits = new Map();
  rec.cache = new Map();
  rec.clock = 0;                                          // seconds of all epochs so far, with their tests
  rec.within = 0;                                         // seconds of validations within the epoch that runs
  rec.trained = 0;                                        // epochs
  rec.epochStart = { step: 0, clock: 0 };
  rec.lastStep = { step: 0, clock: 0 };
  rec.snapshots = [];
  rec.generation = (rec.generation || 0) + 1;
}

const nameOf = id => String(record(id).info?.name ?? id);
const points = (id, split) => record(id).splits.get(split) || [];

// Takes the answer to api/runs. Runs that are not in it any more have no info. True if curves must be drawn anew.
function setRuns(answer) {
  let changed = false;
  store.runs = list(answer.runs).filter(run => run && typeof run.id === 'string');
  store.root = String(answer.root ?? '');
  store.now = isNumber(answer.now) ? answer.now : Date.now() / 1000;
  for (const rec of store.byId.values()) rec.info = null;
  for (const run of store.runs) {
    const rec = record(run.id), shape = [run.batch, run.steps_per_epoch].join();
    if (rec.shape !== shape) {                            // places on the x axis depend on these
      rec.shape = shape;
      rec.cache.clear();
      changed = true;
    }
    rec.info = run;
  }
  return changed;
}

// Takes the answer of api/metrics for one run; true if something has changed.
function addLines(rec, answer) {
  const anew = answer.from === 0 && rec.next !== 0;
  if (answer.from !== rec.next && answer.from !== 0) return false;
  if (anew) forget(rec);
  rec.next = isNumber(answer.next) ? answer.next : rec.next;
  const lines = list(answer.lines).filter(line => line && typeof line === 'object');
  for (const line of lines) addLine(rec, line);
  if (lines.length) rec.cache.clear();
  const names = list(answer.snapshots).map(String), news = names.join('\n') !== rec.snapshots.join('\n');
  if (news) rec.snapshots = names;
  return anew || news || lines.length > 0;
}

function addLine(rec, line) {
  setClock(rec, line);
  if (!rec.splits.has(line.split)) rec.splits.set(line.split, []);
  rec.splits.get(line.split).push(line);
}

// Gives a line its time. Lines of epochs say how long the epoch was; within an epoch it follows from images/s, and is
// corrected when the epoch ends.
function setClock(rec, line) {
  if (line.split === 'train_step') {
    const seconds = (line.step - rec.lastStep.step) * rec.info?.batch / line.images_per_s;
    line.clock = rec.lastStep.clock + seconds;
    if (Number.isFinite(line.clock)) rec.lastStep = { step: line.step, clock: line.clock };
    return;
  }
  const seconds = isNumber(line.seconds) ? line.seconds : 0;
  if (line.split === 'val' && line.epoch > rec.trained) {
    rec.within += seconds;
    line.clock = rec.lastStep.clock += seconds;
    return;
  }
  rec.clock += seconds;
  if (line.split === 'train') rec.clock += rec.within, rec.within = 0, rec.trained = line.epoch;
  line.clock = rec.clock;
  if (!isNumber(line.step)) return;
  if (line.split === 'train') {
    stretch(rec, line);
    if (line.epoch > 0) rec.perEpoch = line.step / line.epoch;
  }
  rec.epochStart = rec.lastStep = { step: line.step, clock: rec.clock };
}

// Spreads the steps of an epoch over its true length.
function stretch(rec, line) {
  const steps = rec.splits.get('train_step') || [], { step, clock } = rec.epochStart;
  for (let i = steps.length - 1; i >= 0 && steps[i].step > step; i--) {
    steps[i].clock = clock + (rec.clock - clock) * (steps[i].step - step) / (line.step - step);
  }
}

// The axes: where a line is on each, and how a place is said.
const axes = {
  step: { name: 'Step', of: line => line.step, say: v => 'step ' + num(Math.round(v)) },
  epoch: { name: 'Epoch', of: epochOf, say: v => 'epoch ' + v.toFixed(2) },
  time: { name: 'Time', of: line => line.clock, say: v => clock(v) },
  images: { name: 'Images', of: (line, rec) => line.step * rec.info?.batch, say: v => num(v) + ' images' },
};

function epochOf(line, rec) {
  const perEpoch = rec.info?.steps_per_epoch || rec.perEpoch;
  if (perEpoch && isNumber(line.step)) return line.step / perEpoch;
  return line.split === 'train_step' ? NaN : line.epoch;
}

// Keeps what `make` gives until the run gets new lines or `what` changes.
function cached(rec, name, what, make) {
  const kept = rec.cache.get(name);
  if (kept && kept.what === what) return kept.value;
  const value = make();
  rec.cache.set(name, { what, value });
  return value;
}

// The points [x, y] of a field of the lines of a split, sorted by x. `of` turns the field into y.
function curve(id, split, field, axis, of = null) {
  const rec = record(id);
  return cached(rec, split + ' ' + field, axis + (of ? of.name : ''), () => {
    const pairs = [];
    let sorted = true;
    for (const line of points(id, split)) {
      const x = axes[axis].of(line, rec), y = line[field];
      if (!isNumber(x) || !isNumber(y)) continue;
      if (pairs.length && pairs.at(-1)[0] > x) sorted = false;
      pairs.push([x, of ? of(y) : y]);
    }
    return sorted ? pairs : pairs.sort((a, b) => a[0] - b[0]);
  });
}
