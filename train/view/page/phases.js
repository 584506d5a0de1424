// Where the time of an epoch goes. dygraphs has no horizontal bars, so these are plain boxes.
'use strict';

const phases = [
  ['data', 'Data'], ['forward', 'Forward'], ['backward', 'Backward'], ['optimizer', 'Optimizer'],
  ['wait', 'Waiting for ranks'], ['other', 'Other'],
];
const kLeast = 0.004;         // share of an epoch below which a phase is not in the legend

function phaseBox(phase) {
  return el('i', { className: phase === 'wait' ? 'wait' : '', style: `background:var(--p-${phase})` });
}
function phaseLegend(used) {
  const shown = phases.filter(([phase]) => used.has(phase));
  const parts = shown.map(([phase, name]) => el('span', { className: 'ph' }, phaseBox(phase), name));
  return el('div', { className: 'phases' }, ...parts);
}

// Seconds of each phase, as the mean of these lines of epochs.
function phaseSeconds(lines) {
  const mean = field => sum(lines.map(l => isNumber(l[field]) ? l[field] : 0)) / lines.length;
  const seconds = { data: mean('data_s'), forward: mean('forward_s'), optimizer: mean('optimizer_s') };
  seconds.wait = mean('exposed_s');
  seconds.backward = Math.max(0, mean('backward_s') - seconds.wait);      // backward_s contains the waiting
  const named = sum(Object.values(seconds));
  const total = Math.max(mean('seconds'), named);
  return { ...seconds, other: total - named, total };
}

function phasePanel() {
  const body = el('div');
  const panel = frame('Where the time of an epoch goes', 'half', body);
  let epoch = null, rows = [];
  const modes = ['Seconds', 'Share'].map((text, i) => {
    const onclick = () => { choice.share = i === 1; writeAddress(); panel.draw(); };
    return el('button', { onclick }, text);
  });
  panel.key.append(el('span', { className: 'seg', role: 'group', 'aria-label': 'Unit' }, ...modes));

  function secondsOf(id) {
    let lines = points(id, 'train').filter(l => isNumber(l.seconds));
    if (lines.length && epoch != null) {
      const last = Math.min(epoch, lines.at(-1).epoch), those = lines.filter(l => l.epoch === last);
      if (those.length) lines = those;
    }
    const seconds = lines.length ? phaseSeconds(lines) : null;
    return seconds?.total > 0 ? seconds : null;
  }

  panel.gather = () => {
    rows = choice.chosen.map(id => [id, secondsOf(id)]).filter(row => row[1]);
    return rows.length > 0;
  };

  panel.draw = () => {
    modes.forEach((button, i) => button.setAttribute('aria-pressed', choice.share === (i === 1)));
    const longest = Math.max(...rows.map(([, seconds]) => seconds.total));
    const used = new Set(rows.flatMap(([, seconds]) =>
      phases.map(([phase]) => phase).filter(phase => seconds[phase] / seconds.total > kLeast)));
    const lines = rows.map(([id, seconds]) => bar(id, seconds, choice.share ? seconds.total : longest));
    const say = epoch == null ? 'Mean of all epochs.' : `Epoch ${epoch}.`;
    body.replaceChildren(phaseLegend(used), el('div', { className: 'lines' }, ...lines),
      el('p', { className: 'say' }, rows.length ? say : 'No epoch is complete yet.'));
  };

  function bar(id, seconds, full) {
    const words = [];
    const boxes = phases.filter(([phase]) => seconds[phase] > 0).map(([phase, name]) => {
      const box = phaseBox(phase);
      box.style.width = 100 * seconds[phase] / full + '%';
      box.title = `${name}: ${secs(seconds[phase])}, ${percent(seconds[phase] / seconds.total, 0)}`;
      words.push(box.title);
      return box;
    });
    const label = `${nameOf(id)}. ${words.join('; ')}`;
    return el('div', { className: 'row' }, tag(id),
      el('div', { className: 'stack', role: 'img', 'aria-label': label }, ...boxes),
      el('span', { className: 'num' }, secs(seconds.total)));
  }

  // Under the pointer: the epoch that is under way there.
  panel.cursor = x => {
    let now = null;
    for (const id of x == null ? [] : choice.chosen) {
      const line = points(id, 'train').find(l => axes[choice.x].of(l, record(id)) >= x);
      if (line && isNumber(line.epoch) && (now == null || line.epoch < now)) now = line.epoch;
    }
    if (now === epoch) return;
    epoch = now;
    panel.gather();
    panel.draw();
  };
  return panel;
}
