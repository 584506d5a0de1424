// Small helpers: elements, numbers as text, and work on lists of points [x, y]. None knows of runs or panels.
// All data come from files that anyone may have written, so nothing here builds markup from text.
'use strict';

const $ = id => document.getElementById(id);

// An element with these properties (or attributes) and children. Children that are null are left out.
function el(name, props = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key === 'style') element.style.cssText = value;
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

// The same for SVG, where all properties are attributes.
function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter(child => child != null));
  return element;
}

// The value of a colour of the style sheet, such as --bg.
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function withAlpha(hex, alpha) {
  const n = parseInt(hex.slice(1), 16);
  return `rgba(${n >> 16},${n >> 8 & 255},${n & 255},${alpha})`;
}

// Storage that a page opened from the disk may not have.
function remember(name, value) {
  try { localStorage.setItem(name, value); } catch { /* it is forgotten */ }
}
function remembered(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

// Fields may be missing, null, or not what they should be.
const isNumber = v => typeof v === 'number' && Number.isFinite(v);
const list = v => Array.isArray(v) ? v : [];
const fields = v => v && typeof v === 'object' && !Array.isArray(v) ? v : {};
const sum = numbers => numbers.reduce((a, b) => a + b, 0);
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));

// Numbers as text.
function num(v, digits = 3) {
  if (!isNumber(v)) return '–';
  const size = Math.abs(v);
  if (size === 0) return '0';
  if (size >= 1e9) return v.toExponential(1).replace('e+', 'e');
  if (size >= 1e5) return (v / 1e3).toFixed(0) + 'k';
  if (size >= 1000) return Math.round(v).toLocaleString('en');
  if (size < 1e-3) return v.toExponential(1).replace('e-', 'e−');
  return String(Number(v.toPrecision(digits))).replace('-', '−');
}
function tick(v) {
  const size = Math.abs(v);
  if (size >= 1e6) return Number((v / 1e6).toPrecision(3)) + 'M';
  if (size >= 1e4) return Number((v / 1e3).toPrecision(3)) + 'k';
  return num(v, size < 1 ? 2 : 4).replace('.0e', 'e');
}
const count = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;
const shorten = (text, most = 14) => text.length > most ? text.slice(0, most - 1) + '…' : text;
const percent = (v, digits = 2) => isNumber(v) ? (100 * v).toFixed(digits) + ' %' : '–';
function bytes(v) {
  if (!isNumber(v)) return '–';
  return v >= 1e10 ? num(v / 1e9) + ' GB' : (v / 1e6).toFixed(v < 1e8 ? 1 : 0) + ' MB';
}
// A length of time.
function secs(s) {
  if (!isNumber(s)) return '–';
  if (s < 0.001) return (s * 1e6).toFixed(0) + ' µs';
  if (s < 1) return (s * 1e3).toFixed(0) + ' ms';
  if (s < 90) return num(s) + ' s';
  return s < 5400 ? Math.round(s / 60) + ' min' : (s / 3600).toFixed(1) + ' h';
}
// A moment, counted from the start.
function clock(s) {
  if (!isNumber(s)) return '–';
  if (s < 60) return num(s) + ' s';
  const whole = Math.round(s), pad = n => String(n).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)}:${pad(whole % 60)} min`;
  return `${Math.floor(whole / 3600)}:${pad(Math.floor(whole / 60) % 60)} h`;
}
function ago(seconds) {
  if (!isNumber(seconds)) return '';
  if (seconds < 90) return 'just now';
  if (seconds < 5400) return Math.round(seconds / 60) + ' min ago';
  return seconds < 129600 ? Math.round(seconds / 3600) + ' h ago' : Math.round(seconds / 86400) + ' days ago';
}

// Exponential mean without the bias to the first value.
function smooth(values, weight) {
  let mean = 0, norm = 0;
  return values.map(v => {
    mean = weight * mean + (1 - weight) * v;
    norm = weight * norm + (1 - weight);
    return mean / norm;
  });
}

function quantile(values, q) {
  const sorted = Float64Array.from(values).sort();
  return sorted[clamp(Math.round(q * (sorted.length - 1)), 0, sorted.length - 1)];
}

// The index of the first of the points, sorted by x, that is not left of x.
function firstFrom(points, x) {
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The point nearest to x; nothing beyond the end of the run.
function nearest(points, x, end) {
  if (!points.length || x > end * 1.01) return null;
  const i = firstFrom(points, x), left = points[i - 1], right = points[i];
  if (!left || !right) return left || right;
  return x - left[0] < right[0] - x ? left : right;
}

// As many points as can be told apart: of each of `count` equal parts of the x axis the lowest and the highest. One
// point on each side of the window stays, so that the curve goes on to the edge.
function thin(points, count, window) {
  let begin = 0, end = points.length;
  if (window) {
    begin = Math.max(0, firstFrom(points, window[0]) - 1);
    end = Math.min(points.length, firstFrom(points, window[1]) + 1);
  }
  if (end - begin <= 2 * count + 2) return begin || end < points.length ? points.slice(begin, end) : points;
  const left = points[begin + 1][0], width = (points[end - 2][0] - left) / count || 1;
  const kept = [points[begin]];
  let low = null, high = null, part = -1;
  const close = () => {
    if (!low) return;
    kept.push(low[0] <= high[0] ? low : high);
    if (low !== high) kept.push(low[0] <= high[0] ? high : low);
  };
  for (let i = begin + 1; i < end - 1; i++) {
    const point = points[i], its = Math.min(count - 1, Math.floor((point[0] - left) / width));
    if (its !== part) {
      close();
      part = its;
      low = high = point;
    }
    if (point[1] < low[1]) low = point;
    if (point[1] > high[1]) high = point;
  }
  close();
  kept.push(points[end - 1]);
  return kept;
}

// Places for the marks of an axis from a to b, about `most` of them: 0, 20, 40; seconds that make whole minutes or
// hours; or, on a log scale, 1, 2, 5, 10.
function linearTicks(a, b, most) {
  if (!(b - a > 1e-12 * Math.max(Math.abs(a), Math.abs(b)))) return [a];
  const power = 10 ** Math.floor(Math.log10((b - a) / most));
  const step = [1, 2, 5, 10, 20].map(f => f * power).find(s => (b - a) / s <= most);
  const ticks = [];
  for (let i = Math.ceil(a / step - 1e-9); i <= b / step + 1e-9 && ticks.length < 50; i++) {
    ticks.push(Number((i * step).toPrecision(12)));
  }
  return ticks;
}
function timeTicks(a, b, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800].concat([1, 2, 3, 6, 12, 24, 48].map(h => 3600 * h));
  const step = b - a < most ? null : steps.find(s => (b - a) / s <= most);
  if (!step) return linearTicks(a, b, most);
  const ticks = [];
  for (let t = Math.ceil(a / step) * step; t <= b; t += step) ticks.push(t);
  return ticks;
}
function logTicks(a, b, most) {
  const inside = digits => {
    const ticks = [];
    for (let p = Math.floor(Math.log10(a)); p <= Math.log10(b); p++) {
      for (const d of digits) ticks.push(Number((d * 10 ** p).toPrecision(3)));
    }
    return ticks.filter(t => t >= a && t <= b);
  };
  const choices = [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]].map(inside);
  const ticks = choices.find(c => c.length <= most) || choices.at(-1);
  if (ticks.length < 2) return linearTicks(a, b, Math.min(most, 4)).filter(t => t > 0);
  const every = Math.ceil(ticks.length / most);
  return ticks.filter((_, i) => i % every === 0);
}
