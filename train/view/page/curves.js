// A chart of curves, drawn by dygraphs: one curve or more for each chosen run, values above it, letters at the ends.
'use strict';

// faint: raw values behind a smoothed curve; thin: training; line: one curve for each run; main: validation, with
// points; dash: kNN; mark: a single result.
const styles = {
  faint: { strokeWidth: 1, alpha: 0.22 },
  thin: { strokeWidth: 1.3, alpha: 0.8 },
  line: { strokeWidth: 1.6, alpha: 1 },
  main: { strokeWidth: 2, drawPoints: true, pointSize: 2.8, alpha: 1 },
  dash: { strokeWidth: 1.8, strokePattern: [5, 3], drawPoints: true, pointSize: 2.8, alpha: 1 },
  mark: { strokeWidth: 0, drawPoints: true, pointSize: 4.5, alpha: 1, drawPointCallback: diamond },
};
const kPoints = 4000;         // drawn at once in a chart; more cannot be told apart
const kNeverCut = ['main', 'dash', 'mark'];   // results are not cut off below
const kLetterHeight = 11, kRightGap = 20;

function diamond(graph, name, context, x, y, color, r) {
  context.beginPath();
  context.moveTo(x, y - r);
  context.lineTo(x + r, y);
  context.lineTo(x, y + r);
  context.lineTo(x - r, y);
  context.closePath();
  context.fillStyle = css('--bg');
  context.fill();
  context.lineWidth = 1.6;
  context.strokeStyle = color;
  context.stroke();
}

// dygraphs' own dragging, but not its touch handling, which would keep a phone from scrolling.
function mouseOnly() {
  const { touchstart, touchmove, touchend, ...rest } = Dygraph.defaultInteractionModel;
  return rest;
}

// Lowest and highest y of what the chart shows: what lies in the window, without the raw values.
function rangeOf(curves, spec, log) {
  const part = choice.window, seen = ([x, y]) => !(log && y <= 0) && (!part || x >= part[0] && x <= part[1]);
  const ysOf = wanted => curves.filter(wanted).flatMap(c => c.shown.filter(seen).map(p => p[1]));
  const ys = ysOf(c => c.style !== 'faint');
  if (!ys.length) return null;
  let low = quantile(ys, 0), high = quantile(ys, 1);
  const cut = choice.clip && ys.length > 6 && spec.clip?.();
  if (cut === 'low') low = quantile(ys, 0.06);
  if (cut === 'high') high = quantile(ys, log ? 0.985 : 0.95);
  if (cut && log) low = quantile(ys, 0.01);
  if (cut === 'high') low = Math.min(low, ...ysOf(c => kNeverCut.includes(c.style)));
  high = Math.max(high, ...ysOf(c => c.style === 'mark'));
  if (log) {
    const lowest = Math.max(low, spec.decades ? high / 10 ** spec.decades : 0, 1e-12);
    const space = Math.max(1.15, (high / lowest) ** 0.06);
    return [lowest / space, high * space];
  }
  const space = Math.max((high - (spec.zero ? 0 : low)) * 0.06, Math.abs(high) * 1e-4) || 1;
  return [spec.zero && low >= 0 ? 0 : low - space, high + space];
}

// The table that dygraphs wants: a row for each x, with the y of each curve or null.
function rowsOf(curves, log) {
  const rows = new Map();
  curves.forEach((c, i) => {
    for (const [x, y] of c.shown) {
      let row = rows.get(x);
      if (!row) rows.set(x, row = [x, ...Array(curves.length).fill(null)]);
      row[i + 1] = log && y <= 0 ? null : y;
    }
  });
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}

// The part of the x axis to show if all points have the same x; else dygraphs shows all of it.
function wide(rows) {
  const x = rows[0][0];
  return x === rows.at(-1)[0] ? [x - (Math.abs(x) || 1) / 2, x + (Math.abs(x) || 1) / 2] : null;
}

function lookOf(c) {
  const style = styles[c.style], dim = choice.focus && choice.focus !== c.id;
  const alone = c.shown.length === 1 && !style.drawPoints ? { drawPoints: true, pointSize: 2.5 } : {};
  const thicker = choice.focus === c.id && style.strokeWidth ? 0.4 : 0;
  return {
    ...style, ...alone,
    strokeWidth: style.strokeWidth + thicker,
    color: withAlpha(colour(c.id), style.alpha * (dim ? 0.28 : 1)),
  };
}

// Marks of the axes as dygraphs wants them.
function xTicks(spec) {
  const space = choice.x === 'time' || spec.size !== 'small' ? 72 : 50;
  return (a, b, pixels) => {
    const most = Math.max(2, Math.floor(pixels / space));
    const ticks = choice.x === 'time' ? timeTicks(a, b, most) : linearTicks(a, b, most);
    return ticks.filter(v => v >= 0).map(v => ({ v, label: choice.x === 'time' ? clock(v) : tick(v) }));
  };
}
function yTicks(spec, log) {
  const say = spec.tick || tick;
  return (a, b, pixels) => {
    const most = Math.max(2, Math.floor(pixels / 30));
    return (log ? logTicks : linearTicks)(a, b, most).map(v => ({ v, label: say(v) }));
  };
}

// Pushes letters, or names `half` of whose width is given, apart that would cover each other: down first, then up from
// the lower edge.
function spreadLetters(marks, bottom) {
  const close = (a, b) => Math.abs(a.x - b.x) < (a.half ?? 6) + (b.half ?? 6);
  marks.sort((a, b) => a.y - b.y);
  marks.forEach((mark, i) => {
    for (const other of marks.slice(0, i)) {
      if (close(mark, other) && mark.y - other.y < kLetterHeight) mark.y = other.y + kLetterHeight;
    }
  });
  for (let i = marks.length - 1; i >= 0; i--) {
    let lowest = bottom;
    for (const other of marks.slice(i + 1)) {
      if (close(marks[i], other)) lowest = Math.min(lowest, other.y - kLetterHeight);
    }
    marks[i].y = Math.min(marks[i].y, lowest);
  }
  return marks;
}

// spec: say, its name; title(curves), if the title says more; size; series(id), which gives
// [{ name, style, points }], the main one last; format and tick for values; zero, log, decades and clip for the range;
// key(curves), the parts of its legend.
function curvePanel(spec) {
  const read = el('div', { className: 'read' }), holder = el('div', { className: 'g' });
  const line = el('div', { className: 'cursor' }), dots = el('div'), ends = el('div');
  const empty = el('p', { className: 'empty' }, 'Nothing yet.');
  const plot = el('div', { className: 'plot', role: 'img', tabIndex: 0 }, holder, ends, line, dots);
  const panel = { ...frame(spec.say, spec.size || 'half', read, plot, empty), curves: [] };
  let graph = null, signature = '', width = 0, log = false;

  panel.gather = () => {
    panel.curves = [];
    for (const id of choice.chosen) {
      for (const c of spec.series(id)) if (c.points.length) panel.curves.push({ ...c, id });
    }
    const count = clamp(Math.floor(kPoints / panel.curves.length / 2), 100, 500);
    for (const c of panel.curves) c.shown = thin(c.points, count, choice.window);
    return panel.curves.length > 0;
  };

  panel.draw = () => {
    const curves = panel.curves, some = curves.length > 0;
    log = Boolean(choice.log && spec.log) && !curves.some(c => c.style !== 'faint' && c.shown.some(p => p[1] < 0));
    panel.head.textContent = spec.title ? spec.title(curves) : spec.say;
    panel.key.replaceChildren(...(spec.key ? spec.key(curves) : []));
    empty.hidden = some;
    plot.hidden = read.hidden = !some;
    if (some) drawGraph(curves);
    else if (graph) { graph.destroy(); graph = null; }
  };

  function drawGraph(curves) {
    const labels = ['x', ...curves.map((c, i) => `${letter(c.id)} ${c.name} ${i}`)];
    const data = rowsOf(curves, log);
    const options = {
      file: data, labels, logscale: log,
      valueRange: rangeOf(curves, spec, log), dateWindow: choice.window || wide(data),
      series: Object.fromEntries(curves.map((c, i) => [labels[i + 1], lookOf(c)])),
      axes: {
        x: { ticker: xTicks(spec), drawGrid: false, axisLabelWidth: 2 * kRightGap },
        y: { ticker: yTicks(spec, log), axisLabelWidth: 46, gridLineColor: css('--grid') },
      },
      axisLineColor: css('--line'), axisTickSize: 3,
    };
    const now = labels.join() + log;
    if (graph && now === signature) {
      if (holder.clientWidth !== width) graph.resize();
      graph.updateOptions(options);
    } else {
      if (graph) graph.destroy();
      graph = new Dygraph(holder, data, {
        ...options, connectSeparatedPoints: true, legend: 'never', highlightCircleSize: 0, rightGap: kRightGap,
        animatedZooms: false, xRangePad: 6, drawCallback: placeEnds, interactionModel: mouseOnly(),
        zoomCallback: zoomed,
      });
    }
    width = holder.clientWidth;
    signature = now;
    panel.cursor(cursorX);
  }

  function zoomed(from, to) {
    if (drawing) return;
    choice.window = graph.isZoomed('x') ? [from, to] : null;
    writeAddress();
    drawAll();
  }

  // The letter of each run at the end of its last curve.
  function placeEnds(g) {
    const area = g.getArea(), [left, right] = g.xAxisRange(), marks = [];
    for (const id of choice.chosen) {
      const main = panel.curves.filter(c => c.id === id && c.style !== 'mark').at(-1);
      const last = main?.shown.filter(p => p[0] >= left && p[0] <= right).at(-1);
      if (!last) continue;
      const [x, y] = g.toDomCoords(last[0], last[1]);
      if (y >= area.y - 4 && y <= area.y + area.h + 4) marks.push({ id, x: x + 6, y });
    }
    ends.replaceChildren(...spreadLetters(marks, area.y + area.h - 2).map(mark => {
      const faded = choice.focus && choice.focus !== mark.id;
      const place = `left:${mark.x}px;top:${mark.y - 6}px;opacity:${faded ? 0.25 : 1}`;
      return el('span', { className: 'end', style: `--c:var(--r${slotOf(mark.id)});${place}` }, letter(mark.id));
    }));
  }

  // The values of a run at x, or its newest ones: the main curve's first. Points are those to be marked.
  function valuesOf(id, x) {
    const own = panel.curves.filter(c => c.id === id && c.style !== 'faint');
    const end = Math.max(...own.map(c => c.points.at(-1)[0]));
    const order = [...own.filter(c => c.style !== 'mark').reverse(), ...own.filter(c => c.style === 'mark')];
    const values = [];
    for (const c of order) {
      let point = c.points.at(-1);
      if (x != null) point = c.style === 'mark' ? null : nearest(c.points, x, end);
      if (point) values.push({ name: c.name, point, text: spec.format(point[1]) });
    }
    return values;
  }

  panel.cursor = x => {
    if (!graph) return;
    const area = graph.getArea(), at = x == null ? -1 : graph.toDomXCoord(x);
    const inside = at >= area.x && at <= area.x + area.w;
    line.style.cssText = inside ? `display:block;left:${at}px;height:${area.h}px` : 'display:none';
    if (x == null) read.style.minHeight = '';
    const words = [], marks = [];
    read.replaceChildren();
    for (const id of choice.chosen) {
      if (!panel.curves.some(c => c.id === id)) continue;
      const [first, ...more] = valuesOf(id, x), rest = more.map(v => v.name + ' ' + v.text).join(' · ');
      const color = `--c:var(--r${slotOf(id)})`;
      const span = el('span', { style: color, className: first ? '' : 'dim' }, el('b', {}, letter(id) + ' '));
      span.append(first ? first.text : '–');
      if (rest) span.append(el('em', {}, rest));
      read.append(span);
      if (first) words.push(`${nameOf(id)}: ${first.name} ${first.text}${rest ? ', ' + rest : ''}`);
      for (const value of inside ? [first, ...more] : []) if (value) marks.push(dot(value.point, color, area));
    }
    dots.replaceChildren(...marks.filter(Boolean));
    if (x != null) return;
    read.style.minHeight = read.offsetHeight + 'px';                     // so that nothing jumps under the pointer
    plot.setAttribute('aria-label', `${panel.head.textContent}. Newest values: ${words.join('; ')}`);
  };

  function dot(point, color, area) {
    const [x, y] = graph.toDomCoords(point[0], point[1]);
    if (!(y > area.y - 2 && y < area.y + area.h + 2)) return null;
    return el('i', { className: 'dot', style: `${color};left:${x}px;top:${y}px` });
  }

  panel.resize = () => {
    if (!graph) return;
    graph.resize();
    width = holder.clientWidth;
    panel.cursor(cursorX);
  };

  const follow = event => {
    if (graph) setCursor(graph.toDataXCoord(event.clientX - plot.getBoundingClientRect().left));
  };
  plot.addEventListener('pointermove', follow);
  plot.addEventListener('pointerdown', follow);
  plot.addEventListener('pointerleave', () => setCursor(null));
  plot.addEventListener('blur', () => setCursor(null));
  plot.addEventListener('keydown', event => {                            // arrow keys move the cursor
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (!step || !graph) return;
    event.preventDefault();
    const [left, right] = graph.xAxisRange();
    const from = cursorX ?? (step < 0 ? right : left);
    setCursor(clamp(from + step * (right - left), left, right));
  });
  return panel;
}
