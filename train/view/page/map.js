// The map of features: each test image is a point; images that the network finds alike lie close together.
'use strict';

const kLegend = 20;           // classes at most for which there is a legend
const kMapHeight = 340, kEdge = 14, kReach = 14;

// A colour for each class: hues in a circle, alternately darker and lighter.
function classColour(i, classes) {
  const dark = document.documentElement.dataset.theme === 'dark';
  const hue = classes <= kLegend ? 360 * i / classes + 8 : (137.508 * i) % 360;
  const light = (dark ? 62 : 40) + (i % 2 ? 10 : 0);
  return `hsl(${hue.toFixed(0)} 66% ${light}%)`;
}

// The points that can be drawn: { x, y, label } with x and y from 0 to 1.
function mapPoints(snapshot) {
  const { x, y, label } = fields(snapshot.map), points = [];
  for (let i = 0; i < Math.min(list(x).length, list(y).length); i++) {
    if (isNumber(x[i]) && isNumber(y[i])) points.push({ x: x[i], y: y[i], label: list(label)[i] ?? null });
  }
  for (const axis of points.length ? ['x', 'y'] : []) {
    const values = points.map(p => p[axis]), low = quantile(values, 0), size = quantile(values, 1) - low || 1;
    for (const p of points) p[axis] = (p[axis] - low) / size;
  }
  return points;
}

function mapPanel() {
  return snapshotPanel({
    title: 'Map of features',
    themed: true,
    has: snapshot => list(snapshot.map?.x).length,
    draw: (snapshot, width) => featureMap(snapshot, mapPoints(snapshot), Math.max(200, width || 500)),
  });
}

function featureMap(snapshot, points, width) {
  const labels = [...new Set(points.map(p => p.label).filter(Number.isInteger))].sort((a, b) => a - b);
  const classes = Math.max(list(snapshot.classes).length, (labels.at(-1) ?? 0) + 1);
  const scale = window.devicePixelRatio || 1;
  const canvas = el('canvas', {
    width: width * scale, height: kMapHeight * scale, style: `width:${width}px;height:${kMapHeight}px`, role: 'img',
    'aria-label': `Map of ${points.length} features of ${labels.length} classes`,
  });
  const hover = el('span', { className: 'hover', hidden: true }), say = el('p', { className: 'say' });
  const context = canvas.getContext('2d');
  for (const p of points) {
    p.left = kEdge + p.x * (width - 2 * kEdge);
    p.top = kMapHeight - kEdge - p.y * (kMapHeight - 2 * kEdge);
    p.color = Number.isInteger(p.label) ? classColour(p.label, classes) : css('--muted');
  }
  const radius = points.length > 2000 ? 1.6 : points.length > 500 ? 2.2 : 3;

  // All points; if a class is given, the others are dimmed.
  function paint(only) {
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, kMapHeight);
    for (const front of [false, true]) {
      for (const p of points) {
        if ((only == null || p.label === only) !== front) continue;
        context.globalAlpha = front ? 0.75 : 0.12;
        context.fillStyle = p.color;
        context.beginPath();
        context.arc(p.left, p.top, radius, 0, 2 * Math.PI);
        context.fill();
      }
    }
    context.globalAlpha = 1;
    const named = labels.length > kLegend ? [] : only == null ? labels : [only];
    for (const name of spreadLetters(named.map(nameOf), kMapHeight - kEdge)) write(name);
  }
  // The name of a class in the middle of its points: colour does not stand alone.
  function nameOf(label) {
    const own = points.filter(p => p.label === label), text = shorten(className(snapshot, label), 18);
    context.font = '600 11px sans-serif';
    const half = context.measureText(text).width / 2 + 4;
    return { text, half, x: clamp(quantile(own.map(p => p.left), 0.5), half, width - half),
             y: quantile(own.map(p => p.top), 0.5) };
  }
  function write({ text, x, y }) {
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.lineWidth = 3;
    context.lineJoin = 'round';
    context.strokeStyle = css('--bg');
    context.strokeText(text, x, y);
    context.fillStyle = css('--text');
    context.fillText(text, x, y);
  }
  canvas.onpointermove = event => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const far = p => (p.left - x) ** 2 + (p.top - y) ** 2;
    let best = null;
    for (const p of points) if (!best || far(p) < far(best)) best = p;
    hover.hidden = !best || far(best) > kReach ** 2;
    if (hover.hidden) return;
    hover.textContent = className(snapshot, best.label);
    hover.style.cssText = `--c:${best.color};left:${best.left}px;top:${best.top}px`;
    hover.classList.toggle('left', best.left > width / 2);
  };
  canvas.onpointerleave = () => { hover.hidden = true; };

  const legend = labels.length > kLegend || !labels.length ? null
    : el('div', { className: 'phases', onpointerleave: () => paint(null) }, ...labels.map(label => {
      const box = el('i', { style: `background:${classColour(label, classes)};border-radius:50%` });
      const show = () => paint(label);
      const props = { className: 'ph', onpointerenter: show, onfocus: show, onblur: () => paint(null) };
      return el('button', props, box, shorten(className(snapshot, label), 24));
    }));
  const [first, second] = list(snapshot.map.explained);
  const much = isNumber(first) && isNumber(second)
    ? ` They hold ${percent(first, 0)} and ${percent(second, 0)} of the variance.` : '';
  say.textContent = 'Two principal components of the features of test images, coloured by class.' + much;
  paint(null);
  return [el('div', { className: 'map' }, canvas, hover), legend, say].filter(Boolean);
}
