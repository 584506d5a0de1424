// How the network judges images with known classes: its confusions, and sample predictions.
'use strict';

const kLongName = 3;          // letters of a class from which names stand upright above the matrix
const kManyClasses = 14;      // from here cells are too small for numbers
const kMistakes = 12;         // shown at first

const splitNames = { val: 'the validation set', test: 'the test set', train_views: 'training images' };
const onSplit = snapshot => splitNames[snapshot.split] ? ' on ' + splitNames[snapshot.split] : '';

function matrixOf(snapshot) {
  const rows = list(snapshot.confusion);
  const good = rows.length > 1 && rows.every(row => list(row).length === rows.length && row.every(isNumber));
  return good ? rows : null;
}
function mistakesOf(snapshot) {
  return list(snapshot.mistakes).filter(m => Array.isArray(m) && Number.isInteger(m[0]) && Number.isInteger(m[1]));
}

function confusionPanel() {
  return snapshotPanel({
    title: 'Confusion',
    heading: snapshot => (matrixOf(snapshot) ? 'Confusion' : 'Most frequent mistakes') + onSplit(snapshot),
    has: snapshot => matrixOf(snapshot) || mistakesOf(snapshot).length,
    draw: snapshot => matrixOf(snapshot) ? confusionMatrix(snapshot, matrixOf(snapshot)) : mistakeList(snapshot),
  });
}

// Colours show mistakes only: the diagonal would drown them.
function confusionMatrix(snapshot, matrix) {
  const size = matrix.length, name = i => className(snapshot, i), say = el('p', { className: 'say' });
  const totals = matrix.map(sum);
  const wrong = matrix.flatMap((row, i) => row.map((images, j) => ({ i, j, images })))
    .filter(cell => cell.i !== cell.j).sort((a, b) => b.images - a.images);
  const most = Math.max(1, wrong[0].images);
  const tell = (i, j) => {
    const what = i === j ? ['Right: ', el('b', {}, name(i))]
      : ['Mistaken: ', el('b', {}, `${name(i)} taken for ${name(j)}`)];
    const share = percent(matrix[i][j] / (totals[i] || 1), 1);
    say.replaceChildren(...what, `, ${num(matrix[i][j])} of ${num(totals[i])} images (${share}).`);
  };
  const rest = () => {
    const { i, j, images } = wrong[0], mistake = el('b', {}, `${name(i)} taken for ${name(j)}`);
    const parts = images ? ['Most frequent mistake: ', mistake, `, ${num(images)} images.`] : ['No mistakes.'];
    say.replaceChildren(...parts, ' Rows: true class; columns: prediction.');
  };
  const cell = (images, i, j) => {
    const part = i === j ? 0.1 : Math.sqrt(images / most);
    const alpha = i === j ? 0.1 : images ? 0.08 + 0.8 * part : 0.025;
    const ink = i === j ? '--muted' : part > 0.62 ? '--bg' : '--text';
    const style = `background:rgba(var(--heat),${alpha});color:var(${ink})`;
    const text = images && size <= kManyClasses ? String(images) : '';
    return el('div', { className: 'c', style, onpointerenter: () => tell(i, j), onclick: () => tell(i, j) }, text);
  };
  const long = matrix.some((_, i) => name(i).length > kLongName);
  const head = i => {
    const text = el('span', {}, shorten(name(i)));
    return el('div', { className: 'h' + (long ? ' up' : ''), title: name(i) }, text);
  };
  const worst = wrong.slice(0, 5).filter(w => w.images).map(w => `${name(w.i)} taken for ${name(w.j)}: ${w.images}`);
  const grid = el('div', {
    className: 'conf' + (size > kManyClasses ? ' dense' : ''), role: 'img', onpointerleave: rest,
    style: `grid-template-columns:minmax(22px, max-content) repeat(${size}, minmax(0, 1fr)) 46px`,
    'aria-label': 'Confusion matrix. Most frequent mistakes: ' + (worst.join('; ') || 'none'),
  }, el('div'), ...matrix.map((_, i) => head(i)), el('div', { className: 'h' }, 'right'));
  matrix.forEach((row, i) => {
    const right = percent(matrix[i][i] / (totals[i] || 1), 1);
    grid.append(el('div', { className: 'h name', title: name(i) }, name(i)), ...row.map((v, j) => cell(v, i, j)),
      el('div', { className: 'h' }, right));
  });
  rest();
  return [grid, say];
}

// For many classes: which are taken for which.
function mistakeList(snapshot) {
  const mistakes = mistakesOf(snapshot), most = Math.max(1, ...mistakes.map(m => m[2] || 0));
  const rows = mistakes.map(([label, predicted, images]) => {
    const bar = el('i', { style: `width:${100 * (images || 0) / most}%` });
    return el('tr', {}, el('td', {}, className(snapshot, label)), el('td', {}, className(snapshot, predicted)),
      el('td', { className: 'count' }, num(images)), el('td', { className: 'bar' }, bar));
  });
  const title = text => el('th', { scope: 'col' }, text);
  const body = el('tbody', {}, ...rows.slice(0, kMistakes));
  const table = el('table', { className: 'mistakes' },
    el('thead', {}, el('tr', {}, title('is'), title('taken for'), title('images'), el('td'))), body);
  if (rows.length <= kMistakes) return [table];
  const more = el('button', { className: 'button more' }, `Show all ${rows.length}`);
  more.onclick = () => {
    body.replaceChildren(...rows);
    more.remove();
  };
  return [table, more];
}

function samplesPanel() {
  return snapshotPanel({
    title: 'Sample predictions',
    heading: snapshot => 'Sample predictions' + onSplit(snapshot),
    size: 'full',
    has: snapshot => samplesOf(snapshot).length,
    draw: snapshot => {
      const samples = samplesOf(snapshot), figures = samples.map(sample => sampleFigure(snapshot, sample));
      const long = samples.some(sample => className(snapshot, sample.predicted).length > kLongName);
      const say = 'Mistakes first, the most confident ones at the front. Bold: the prediction; below: its probability.';
      return [el('div', { className: long ? 'samples long' : 'samples' }, ...figures),
        el('p', { className: 'say' }, say)];
    },
  });
}
const samplesOf = snapshot => list(snapshot.samples).filter(sample => Number.isInteger(sample?.predicted));
function sampleFigure(snapshot, { label, predicted, confidence, image }) {
  const wrong = label !== predicted, is = className(snapshot, label), guess = className(snapshot, predicted);
  const text = `${guess}, ${wrong ? 'but is ' + is : 'right'}`;
  const sure = isNumber(confidence) ? el('i', {}, percent(confidence, 0)) : null;
  return el('figure', { className: wrong ? 'wrong' : '', title: text },
    picture(snapshot, image, text),
    el('b', {}, (wrong ? '✕ ' : '') + guess),
    el('p', {}, el('span', {}, wrong ? 'is ' + is : 'right'), sure));
}
