// Where the data comes from: the same four questions, answered by the server (ringtape view) or by the page itself
// (report.html). `live` says whether asking again can give anything new.
'use strict';

const kPatience = 10000;      // milliseconds until a server that does not answer counts as gone

function openSource() {
  const kind = document.querySelector('meta[name=ringtape-source]').content;
  if (kind !== 'embedded') return serverSource();
  return embeddedSource(JSON.parse($('ringtape-data').textContent));
}

function serverSource() {
  // Errors that the server reports have a status; else there was no answer.
  async function get(path, query = []) {
    const text = query.map(([name, value]) => name + '=' + encodeURIComponent(value)).join('&');
    const options = { cache: 'no-store', signal: AbortSignal.timeout(kPatience) };
    let answer;
    try {
      answer = await fetch(text ? path + '?' + text : path, options);
      if (answer.ok) return await answer.json();
    } catch {
      throw Object.assign(new Error('no answer'), { noAnswer: true });
    }
    throw Object.assign(new Error(answer.status + ' for ' + path), { status: answer.status });
  }
  return {
    live: true,
    runs: () => get('api/runs'),
    run: id => get('api/run', [['id', id]]),
    metrics: wanted => get('api/metrics', wanted.map(([id, from]) => ['run', from + ':' + id])),
    snapshot: (id, name) => get('api/snapshot', [['id', id], ['name', name]]),
  };
}

function embeddedSource(data) {
  const missing = what => Object.assign(new Error('this report has no ' + what), { status: 404 });
  const own = (object, key) => object && Object.hasOwn(object, key) ? object[key] : null;
  return {
    live: false,
    comparison: data.comparison,
    runs: async () => data.runs,
    run: async id => own(data.run, id) || { id },
    metrics: async wanted => ({ metrics: Object.fromEntries(wanted.map(([id]) => [id, own(data.metrics, id)])) }),
    snapshot: async (id, name) => {
      const answer = own(own(data.snapshots, id), name);
      if (!answer) throw missing(name);
      return answer;
    },
  };
}
