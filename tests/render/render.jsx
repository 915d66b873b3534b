// Draws a board (classic JSON) with Grafana's own front-end packages, against a Prometheus HTTP API.
// index.html?dash=FILE&prom=URL&end=UNIX&hours=H. Leaves <pre id="report"> with what went wrong.
// Grafana's: panel chrome, grid, time range, transformations, units, thresholds, mappings, overrides, and the drawing of
// time series, tables, stats and bar gauges. Ours: the adapters that stand in for its panel plugins and data source, which
// are on no registry under a licence to link. Heatmap and state timeline have no such renderer: cells and rows are drawn
// here, plainly, with the colours and texts that Grafana's field options give them, and the report names these panels.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';
import { from } from 'rxjs';
import { map } from 'rxjs/operators';
import * as D from '@grafana/data';
import * as U from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import * as R from '@grafana/runtime';
import * as S from '@grafana/scenes';

const arg = Object.fromEntries(new URL(location.href).searchParams);
const PROM = arg.prom, END = +arg.end, START = END - 3600 * (+arg.hours || 3), STEP = Math.max(5, Math.round((END - START) / 200));
const theme = D.createTheme({ colors: { mode: arg.theme || 'dark' } });
const problems = [];
const nothing = new Set(), ours = new Set(); // titles of panels without data, and of those that are drawn by us
const say = (s) => problems.includes(s) || problems.push(s);

// --- registries that Grafana's app fills at start
const opt = (id) => ({ id, path: id, name: id, description: '', process: (v) => v, shouldApply: () => true, editor: () => null, override: () => null, settings: {} });
D.standardFieldConfigEditorRegistry.setInit(() => ['displayName', 'unit', 'min', 'max', 'decimals', 'noValue', 'thresholds', 'mappings', 'links', 'color', 'filterable', 'description'].map(opt));
const transformers = new Map(Object.values(D.standardTransformers).map((t) => [t.id, t]));
D.standardTransformersRegistry.setInit(() => [...transformers.values()].map((t) => ({ id: t.id, name: t.name, transformation: async () => t, editor: () => null })));
R.setPluginImportUtils({ importPanelPlugin: async (i) => { throw new Error('no panel plugin ' + i); }, getPanelPluginFromCache: () => undefined });
R.setTimeZoneResolver?.(() => 'utc');
R.setAppEvents?.(new D.EventBusSrv());
R.setTemplateSrv?.({ replace: (x) => x, getVariables: () => [], containsTemplate: () => false, updateTimeRange() {} });
R.setDataSourceSrv?.({ get: async () => { throw new Error('no data source'); }, getList: () => [], getInstanceSettings: () => undefined, reload() {} });
R.setBackendSrv?.({ get: async () => ({}), fetch: () => from([]) });
R.setRunRequest?.((ds, req) => ds.query(req).pipe(map((r) => ({ series: r.data, state: D.LoadingState.Done, timeRange: req.range, request: req, errors: r.errors }))));

// --- panels
const safe = (kind, draw) => (p) => { try { return draw(p); } catch (e) { say(`${kind} "${p.title}": ${e.message}`); return <pre style={{ color: 'red' }}>{String(e)}</pre>; } };
const empty = (p) => !p.data.series.length || p.data.series.every((f) => !f.length);
const values = (p) => D.getFieldDisplayValues({ fieldConfig: p.fieldConfig, reduceOptions: p.options.reduceOptions || { calcs: ['lastNotNull'] }, replaceVariables: p.replaceVariables, theme, data: p.data.series, sparkline: true, timeZone: 'utc' });
const at = (t) => `${Math.max(0, Math.min(100, (100 * (t / 1e3 - START)) / (END - START)))}%`;
const axis = <div style={{ position: 'relative', height: 16, fontSize: 11, opacity: 0.7 }}>{[0, 1, 2, 3].map((i) => <span key={i} style={{ position: 'absolute', left: `${i * 25 + 10}%` }}>{new Date((START + ((i + 0.4) * (END - START)) / 4) * 1e3).toISOString().slice(11, 19)}</span>)}</div>;
const column = (frame, n) => frame.fields.filter((f) => f.type === D.FieldType.number)[n];
function timeline(p) { // a row a series; neighbours of one colour are one bar
  ours.add(p.title);
  const rows = p.data.series.map((f) => ({ name: D.getFieldDisplayName(column(f, 0), f), times: f.fields[0].values, shown: column(f, 0).values.map((v) => column(f, 0).display(v)) }));
  const high = Math.min(28, (p.height - 40) / rows.length), names = new Map(rows.flatMap((r) => r.shown.map((d) => [d.text, d.color])));
  return <div style={{ fontSize: 12 }}>{rows.map((r, i) => <div key={i} style={{ display: 'flex', height: high, alignItems: 'center' }}>
    <div style={{ width: '34%', overflow: 'hidden', textOverflow: 'ellipsis', whiteSpace: 'nowrap', textAlign: 'right', paddingRight: 6 }}>{r.name}</div>
    <div style={{ position: 'relative', flex: 1, height: '90%' }}>{r.shown.map((d, j) => <div key={j} style={{ position: 'absolute', top: 0, bottom: 0, left: at(r.times[j]), width: `calc(${at(r.times[j] + STEP * 1e3)} - ${at(r.times[j])})`, background: d.color, opacity: 0.85 }} />)}</div>
  </div>)}<div style={{ marginLeft: '34%' }}>{axis}</div><div>{[...names].map(([text, color]) => <span key={text} style={{ marginRight: 12 }}><span style={{ display: 'inline-block', width: 14, height: 4, background: color, marginRight: 5, verticalAlign: 'middle' }} />{text}</span>)}</div></div>;
}
function heatmap(p) { // cumulative buckets of one instant become cells; the more, the stronger
  ours.add(p.title);
  const bound = (f) => (f.name === '+Inf' ? Infinity : +f.name), frames = [...p.data.series].sort((a, b) => bound(a) - bound(b));
  const times = [...new Set(frames.flatMap((f) => [...f.fields[0].values]))].sort((a, b) => a - b);
  const table = frames.map((f) => new Map([...f.fields[0].values].map((t, i) => [t, column(f, 0).values[i]])));
  const cells = table.map((row, i) => times.map((t) => Math.max(0, (row.get(t) ?? 0) - (i ? (table[i - 1].get(t) ?? 0) : 0))));
  const most = Math.max(...cells.flat(), 1e-9), used = cells.map((row, i) => ({ row, f: frames[i] })).filter((one) => one.row.some((v) => v > 1e-9));
  const unit = D.getValueFormat(p.options.yAxis?.unit || 'short'), label = (f) => (f.name === '+Inf' ? '+Inf' : D.formattedValueToString(unit(+f.name)));
  const high = Math.min(40, (p.height - 20) / Math.max(1, used.length));
  return <div style={{ fontSize: 11 }}>{used.reverse().map(({ row, f }) => <div key={f.name} style={{ display: 'flex', height: high, alignItems: 'center' }}>
    <div style={{ width: 64, textAlign: 'right', paddingRight: 6, opacity: 0.8 }}>{label(f)}</div>
    <div style={{ position: 'relative', flex: 1, height: '100%' }}>{row.map((v, j) => v > 1e-9 && <div key={j} style={{ position: 'absolute', top: 0, bottom: 1, left: at(times[j]), width: `calc(${at(times[j] + STEP * 1e3)} - ${at(times[j])})`, background: '#ff9830', opacity: 0.12 + 0.88 * Math.sqrt(v / most) }} />)}</div>
  </div>)}<div style={{ marginLeft: 64 }}>{axis}</div></div>;
}
const draw = {
  timeseries: (p) => <U.TimeSeries frames={p.data.series} width={p.width} height={p.height} timeRange={p.timeRange} timeZone="utc" structureRev={p.data.structureRev} legend={{ calcs: [], displayMode: 'list', placement: 'bottom', showLegend: true, ...(p.options.legend || {}) }} options={p.options} />,
  table: (p) => { D.cacheFieldDisplayNames(p.data.series); return <TableNG data={p.data.series[0]} width={p.width} height={p.height} timeRange={p.timeRange} structureRev={p.data.structureRev} enableVirtualization={false} getActions={() => []} />; },
  stat: (p) => <div style={{ display: 'flex' }}>{values(p).map((v, i, a) => <U.BigValue key={i} width={p.width / a.length} height={p.height} value={v.display} sparkline={p.options.graphMode === 'none' ? undefined : v.sparkline} theme={theme} colorMode={p.options.colorMode || 'value'} graphMode={p.options.graphMode || 'area'} justifyMode="auto" text={p.options.text} textMode={p.options.textMode || 'auto'} count={a.length} />)}</div>,
  bargauge: (p) => <div>{values(p).map((v, i, a) => <U.BarGauge key={i} width={p.width} height={Math.min(48, Math.max(18, p.height / a.length - 4))} value={v.display} field={v.field} display={v.view?.getFieldDisplayProcessor(v.colIndex)} orientation="horizontal" theme={theme} displayMode="gradient" text={p.options.text} itemSpacing={6} alignmentFactors={D.getDisplayValueAlignmentFactors(a)} />)}</div>,
  heatmap,
  'state-timeline': timeline,
  row: (p) => <div style={{ fontSize: 15, fontWeight: 500, marginTop: -7, whiteSpace: 'nowrap' }}>{p.options.heading}</div>,
  text: (p) => <div dangerouslySetInnerHTML={{ __html: D.renderMarkdown(p.options.content || '') }} />,
};
const custom = ['cellOptions', 'width', 'minWidth', 'align', 'filterable', 'inspect', 'drawStyle', 'fillOpacity', 'lineWidth', 'lineStyle', 'lineInterpolation', 'gradientMode', 'hideFrom', 'axisPlacement', 'axisLabel', 'axisSoftMin', 'axisSoftMax', 'scaleDistribution', 'stacking', 'thresholdsStyle', 'spanNulls', 'showPoints', 'pointSize', 'barAlignment'];
for (const [id, fn] of Object.entries(draw)) {
  const plugin = new D.PanelPlugin(safe(id, (p) => (!['text', 'row'].includes(id) && empty(p) ? (nothing.add(p.title), <div>{p.fieldConfig.defaults.noValue || 'No data'}</div>) : fn(p))));
  plugin.useFieldConfig({ useCustomConfig: (b) => custom.forEach((c) => b.addCustomEditor({ ...opt(c), path: c })) });
  plugin.meta = { id, skipDataQuery: ['text', 'row'].includes(id), name: id, type: 'panel', module: '', baseUrl: '', info: {}, sort: 1 };
  S.sceneUtils.registerRuntimePanelPlugin({ pluginId: id, plugin });
}

// --- data source: range queries give one frame a series, table or instant queries one row a series
const vars = {};
const interpolate = (e) => e.replace(/\$__rate_interval|\$\{__rate_interval\}/g, '2m').replace(/\$__interval|\$\{__interval\}/g, STEP + 's').replace(/\$__range|\$\{__range\}/g, Math.round((END - START) / 60) + 'm')
  .replace(/\$\{([A-Za-z_]\w*)(?::\w+)?\}|\$([A-Za-z_]\w*)/g, (m, a, b) => vars[a || b] ?? (say('unknown variable ' + m), m));
const nameOf = (m) => { const { __name__ = '', ...r } = m; return __name__ + '{' + Object.entries(r).map(([k, v]) => `${k}="${v}"`).join(', ') + '}'; };
async function run(t, many) {
  const inst = t.instant || t.format === 'table', u = new URL(PROM + (inst ? '/api/v1/query' : '/api/v1/query_range'));
  const q = { query: interpolate(t.expr), ...(inst ? { time: END } : { start: START, end: END, step: STEP }) };
  Object.entries(q).forEach(([k, v]) => u.searchParams.set(k, v));
  const j = await (await fetch(u)).json();
  if (j.status !== 'success') { say(`query ${t.refId}: ${j.error} :: ${q.query}`); return []; }
  if (t.instant && t.format !== 'table') j.data.result.forEach((r) => { r.values = [r.value]; });
  else if (inst) {
    const keys = [...new Set(j.data.result.flatMap((r) => Object.keys(r.metric)))].sort();
    return [D.createDataFrame({ refId: t.refId, fields: [{ name: 'Time', type: D.FieldType.time, values: j.data.result.map((r) => r.value[0] * 1e3) }, ...keys.map((k) => ({ name: k, type: D.FieldType.string, values: j.data.result.map((r) => r.metric[k] ?? '') })), { name: many ? 'Value #' + t.refId : 'Value', type: D.FieldType.number, values: j.data.result.map((r) => +r.value[1]) }] })];
  }
  return j.data.result.map((r) => {
    const l = t.legendFormat && t.legendFormat !== '__auto' ? t.legendFormat.replace(/\{\{\s*(\S+?)\s*\}\}/g, (_, k) => r.metric[k] ?? '') : nameOf(r.metric);
    return D.createDataFrame({ refId: t.refId, name: l, fields: [{ name: 'Time', type: D.FieldType.time, values: r.values.map((v) => v[0] * 1e3), config: { interval: STEP * 1e3 } }, { name: 'Value', type: D.FieldType.number, labels: r.metric, values: r.values.map((v) => +v[1]), config: { displayNameFromDS: l } }] });
  });
}
class Prom extends S.RuntimeDataSource {
  query(req) { return from((async () => ({ data: (await Promise.all(req.targets.filter((t) => !t.hide).map((t) => run(t, req.targets.length > 1)))).flat(), state: D.LoadingState.Done }))()); }
  testDatasource() { return Promise.resolve({ status: 'success', message: '' }); }
}
S.sceneUtils.registerRuntimeDataSource({ dataSource: new Prom('check-prom', 'check-prom') });

(async () => {
  const db = await (await fetch(arg.dash)).json();
  for (const v of db.templating?.list || []) vars[v.name] = v.type === 'datasource' ? 'prom' : Array.isArray(v.current?.value) ? v.current.value.join('|').replace('$__all', v.allValue || '.*') : ['', '$__all', undefined, null].includes(v.current?.value) ? '.*' : v.current.value;
  const flat = (db.panels || []).flatMap((p) => (p.type === 'row' ? [{ ...p, panels: [] }, ...(p.panels || [])] : [p]));
  const panels = flat.filter((p) => {
    for (const t of p.transformations || []) if (!transformers.has(t.id)) say(`panel "${p.title}": unknown transformation ${t.id}`);
    const u = p.fieldConfig?.defaults?.unit;
    if (u && !u.includes(':') && !D.getValueFormats().some((c) => c.submenu.some((f) => f.value === u))) say(`panel "${p.title}": unit ${u} is not known`);
    if (!draw[p.type]) say(`panel "${p.title}": ${p.type} is not drawn here`);
    return draw[p.type];
  });
  const children = panels.map((p) => new S.SceneGridItem({ x: p.gridPos.x, y: p.gridPos.y, width: p.gridPos.w, height: p.gridPos.h, body: new S.VizPanel({ key: 'panel-' + p.id, pluginId: p.type, title: p.type === 'row' ? '' : p.title, hoverHeader: p.type === 'row', description: p.description, options: p.type === 'row' ? { heading: p.title } : p.options || {}, fieldConfig: p.fieldConfig || { defaults: {}, overrides: [] },
    $data: !(p.targets || []).length ? undefined : new S.SceneDataTransformer({ transformations: p.transformations || [], $data: new S.SceneQueryRunner({ datasource: { type: 'check-prom', uid: 'check-prom' }, queries: (p.targets || []).map((t) => ({ ...t, datasource: { type: 'check-prom', uid: 'check-prom' } })), maxDataPoints: 1000 }) }) }) }));
  const scene = new S.EmbeddedScene({ $timeRange: new S.SceneTimeRange({ from: new Date(START * 1e3).toISOString(), to: new Date(END * 1e3).toISOString(), timeZone: 'utc' }), controls: [new S.SceneTimePicker({})], body: new S.SceneGridLayout({ children }) });
  const rows = Math.max(...panels.map((p) => p.gridPos.y + p.gridPos.h), 10);
  createRoot(document.getElementById('root')).render(<D.ThemeContext.Provider value={theme}><U.GlobalStyles /><MemoryRouter><div style={{ width: 1440, height: rows * 38 + 90, display: 'flex' }}><scene.Component model={scene} /></div></MemoryRouter></D.ThemeContext.Provider>);
  const state = () => S.sceneGraph.findAllObjects(scene, (o) => o instanceof S.VizPanel).map((v) => ({ title: v.state.title, type: v.state.pluginId, frames: v.state.$data?.state.data?.series?.length, fields: v.state.$data?.state.data?.series?.[0]?.fields.map((f) => D.getFieldDisplayName(f)), state: v.state.$data ? v.state.$data.state.data?.state : 'Done', errors: v.state.$data?.state.data?.errors?.map((e) => e.message), plugin: v.state._pluginLoadError }));
  for (let i = 0; i < 60 && state().some((s) => s.state !== 'Done' && s.state !== 'Error'); i++) await new Promise((r) => setTimeout(r, 250));
  await new Promise((r) => setTimeout(r, 500));
  const pre = document.createElement('pre'); pre.id = 'report'; pre.style.display = 'none';
  const st = state();
  st.forEach((s) => { if (s.state !== 'Done') say(`panel "${s.title}": ended as ${s.state}`); (s.errors || []).forEach((e) => say(`panel "${s.title}": ${e}`)); if (s.plugin) say(`panel "${s.title}": ${s.plugin}`); });
  pre.textContent = JSON.stringify({ problems, nothing: [...nothing], ours: [...ours], panels: st }); document.body.appendChild(pre);
})().catch((e) => { const pre = document.createElement('pre'); pre.id = 'report'; pre.textContent = JSON.stringify({ problems: ['page: ' + e.stack], nothing: [], ours: [], panels: [] }); document.body.appendChild(pre); });
