// One step of several ranks, from the run's trace: what each rank does, and whom it waits for.
'use strict';

const kMostRanks = 16, kLane = 48, kRankLabel = 52;

function ranksPanel() {
  const body = el('div');
  const panel = frame('What each rank waits for', 'half', body);
  const pick = picker(panel.key, 'Run whose trace is shown', run => { wanted = run; drawPanels([panel]); });
  let wanted = null, id = null, ids = [];

  // The events of a trace that can be drawn.
  const eventsOf = run => list(record(run).detail?.trace?.events).filter(e =>
    e && isNumber(e.start) && isNumber(e.length) && Number.isInteger(e.rank) && e.rank >= 0);

  panel.gather = () => {
    ids = choice.chosen.filter(run => eventsOf(run).length);
    id = ids.includes(wanted) ? wanted : ids[0];
    return ids.length > 0;
  };

  panel.draw = () => {
    pick(ids, id);
    if (!id) return;
    const events = eventsOf(id), ranks = 1 + Math.max(...events.map(e => e.rank));
    const end = Math.max(...events.map(e => e.start + e.length)) / 1000;
    const waits = Array(ranks).fill(0);
    for (const e of events) if (e.name === 'wait') waits[e.rank] += e.length;
    const say = el('p', { className: 'say' }, tag(id), ...sentence(record(id).detail.trace.step, waits, end));
    const used = new Set(events.map(e => e.name));
    body.replaceChildren(phaseLegend(used), timeline(events, Math.min(ranks, kMostRanks), end, say.textContent), say);
  };

  // "step 3: rank 0 waits 22 ms of 48 ms for rank 1, which waits 8 µs."
  function sentence(step, waits, end) {
    const most = waits.indexOf(Math.max(...waits)), least = waits.indexOf(Math.min(...waits));
    const strong = micros => el('b', {}, secs(micros / 1e6));
    const head = isNumber(step) ? ` step ${step}: ` : ' ';
    const tail = waits.length > kMostRanks ? ` The first ${kMostRanks} of ${waits.length} ranks are shown.` : '';
    if (most === least) return [head + 'no rank waits for another.' + tail];
    return [`${head}rank ${most} waits `, strong(waits[most]), ` of ${secs(end / 1e3)} for rank ${least}, which waits `,
      strong(waits[least]), '.' + tail];
  }

  function timeline(events, ranks, end, label) {
    const width = Math.max(280, body.clientWidth || 500), height = ranks * kLane + 20;
    const place = ms => kRankLabel + ms / end * (width - kRankLabel - 8);
    const parts = [hatching()];
    for (let r = 0; r < ranks; r++) {
      parts.push(svg('text', { x: 0, y: r * kLane + 17 }, `rank ${r}`));
      parts.push(svg('text', { x: 0, y: r * kLane + 36, opacity: 0.8 }, 'sending'));
    }
    for (const e of events) if (e.rank < ranks) parts.push(eventBox(e, place));
    const marks = linearTicks(0, end, 6);
    for (const ms of marks) {
      const unit = ms === marks.at(-1) ? ' ms' : '';
      const anchor = ms ? 'middle' : 'start';
      parts.push(svg('text', { x: place(ms), y: ranks * kLane + 14, 'text-anchor': anchor }, ms + unit));
    }
    const attributes = { class: 'gantt', viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label };
    return svg('svg', attributes, ...parts);
  }

  function eventBox(e, place) {
    const x = place(e.start / 1000), width = Math.max(1, place((e.start + e.length) / 1000) - x);
    const title = svg('title', {}, `rank ${e.rank}, ${e.name}: ${secs(e.length / 1e6)}`);
    const y = e.rank * kLane + 2;
    if (e.lane === 'send') {
      return svg('rect', { x, y: y + 26, width, height: 8, rx: 1.5, fill: 'var(--p-wait)', opacity: 0.55 }, title);
    }
    const known = phases.some(([phase]) => phase === e.name) ? e.name : 'other';
    const fill = known === 'wait' ? 'url(#hatch)' : `var(--p-${known})`;
    return svg('rect', { x: x + 0.5, y, width: Math.max(0.8, width - 1), height: 22, rx: 1.5, fill }, title);
  }

  function hatching() {
    const pattern = { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse',
      patternTransform: 'rotate(45)' };
    return svg('defs', {}, svg('pattern', pattern,
      svg('rect', { width: 6, height: 6, fill: 'var(--p-wait)' }),
      svg('rect', { width: 2.4, height: 6, fill: 'var(--bg)', opacity: 0.45 })));
  }

  panel.resize = panel.draw;
  return panel;
}
