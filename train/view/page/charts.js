// The charts: loss, accuracy, learning rate, speed, memory and spread.
'use strict';

const kSmoothed = 1000;       // longer curves are smoothed over more points, so that they look as smooth

// Values of each step if the run logs them, smoothed over the raw ones; else those of each epoch.
function stepCurves(id, field, name) {
  const steps = curve(id, 'train_step', field, choice.x);
  if (steps.length < 2) return [{ name, style: 'thin', points: curve(id, 'train', field, choice.x) }];
  if (!choice.smooth) return [{ name, style: 'thin', points: steps }];
  const smoothed = cached(record(id), 'smooth ' + field, `${choice.x} ${choice.smooth}`, () => {
    const ys = smooth(steps.map(p => p[1]), choice.smooth ** Math.min(1, kSmoothed / steps.length));
    return steps.map((p, i) => [p[0], ys[i]]);
  });
  return [{ name, style: 'faint', points: steps }, { name, style: 'thin', points: smoothed }];
}
function epochCurve(id, split, style, field, of) {
  return { name: split, style, points: curve(id, split, field, choice.x, of) };
}

// The legend of the charts with several splits: only what is drawn.
function splitKey(curves) {
  const has = name => curves.some(c => c.name === name), parts = [];
  if (has('train')) parts.push(keyLine(), 'train');
  if (has('val')) parts.push(keyLine({ point: true }), 'validation');
  if (has('knn')) parts.push(keyLine({ point: true, dash: true }), 'kNN');
  if (has('probe')) parts.push(keyLine({ point: true }), 'probe');
  if (has('test')) parts.push(keyDiamond(), 'test');
  return parts;
}
function keyLine({ point, dash } = {}) {
  const path = svg('path', { d: 'M0 4H20', stroke: 'currentColor', 'stroke-width': point ? 1.8 : 1 });
  if (dash) path.setAttribute('stroke-dasharray', '4 3');
  const circle = point ? svg('circle', { cx: 10, cy: 4, r: 2.6, fill: 'currentColor' }) : null;
  return svg('svg', { width: 20, height: 8, 'aria-hidden': 'true' }, path, circle);
}
function keyDiamond() {
  const path = svg('path', { d: 'M6 1l4 4-4 4-4-4z', fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4 });
  return svg('svg', { width: 12, height: 10, 'aria-hidden': 'true' }, path);
}

function lossPanel() {
  const mixed = () => new Set(choice.chosen.map(id => record(id).info.method || '')).size > 1;
  return curvePanel({
    say: 'Loss',
    title: () => mixed() ? 'Loss (of different methods: not comparable)' : 'Loss',
    log: true, clip: () => 'high', key: splitKey,
    format: v => Math.abs(v) < 1e-3 || Math.abs(v) >= 1e3 ? num(v) : v.toPrecision(3),
    series: id => [...stepCurves(id, 'loss', 'train'), epochCurve(id, 'val', 'main', 'loss')],
  });
}

// On the log scale the panel shows the error, where the differences near 100 % can be seen.
function error(accuracy) { return 1 - accuracy; }
function accuracyPanel() {
  return curvePanel({
    say: 'Accuracy',
    title: curves => {
      const title = choice.log ? 'Error rate' : 'Accuracy', knn = curves.length && curves.every(c => c.name === 'knn');
      return knn ? 'kNN ' + title.toLowerCase() : title;
    },
    log: true, clip: () => choice.log ? 'high' : 'low', key: splitKey,
    format: v => percent(v), tick: v => num(100 * v, 3) + ' %',
    series: id => {
      const of = choice.log ? error : null;
      const parts = [['train', 'thin'], ['knn', 'dash'], ['probe', 'main'], ['val', 'main'], ['test', 'mark']];
      return parts.map(([split, style]) => epochCurve(id, split, style, 'top1', of));
    },
  });
}

function ratePanel() {
  return curvePanel({
    say: 'Learning rate', size: 'small', zero: true, log: true, decades: 3, format: v => num(v),
    series: id => {
      const steps = curve(id, 'train_step', 'lr', choice.x);
      const points = steps.length > 1 ? steps : curve(id, 'train', 'lr', choice.x);
      return [{ name: 'rate', style: 'line', points }];
    },
  });
}

function speedPanel() {
  return curvePanel({
    say: 'Images per second', size: 'small', log: true, zero: true, format: v => num(v),
    series: id => stepCurves(id, 'images_per_s', 'train'),
  });
}

function memoryPanel() {
  return curvePanel({
    say: 'Peak memory', size: 'small', zero: true, format: bytes, tick: v => num(v / 1e6) + ' MB',
    series: id => [{ name: 'memory', style: 'line', points: curve(id, 'train', 'peak_bytes', choice.x) }],
  });
}

// Pretraining: how far features lie apart. Near 0, all images look the same to the network: it has collapsed.
function spreadPanel() {
  return curvePanel({
    say: 'Spread of features', size: 'small', zero: true, format: v => num(v),
    series: id => [{ name: 'spread', style: 'line', points: curve(id, 'train', 'spread', choice.x) }],
  });
}
