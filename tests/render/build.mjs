// node build.mjs makes out.js and out.css, the page that draws a board.
// @grafana/scenes wants react-router-dom 6, @grafana/ui and runtime want 5: give each its own.
import * as esbuild from 'esbuild';
const router = { name: 'router', setup(b) {
  b.onResolve({ filter: /^react-router-dom$/ }, (a) => /@grafana[\\/]scenes/.test(a.importer) ? b.resolve('rrd6', { resolveDir: process.cwd(), kind: a.kind }) : undefined);
} };
await esbuild.build({ entryPoints: ['render.jsx'], outfile: 'out.js', bundle: true, format: 'iife', jsx: 'automatic', logLevel: 'error', plugins: [router],
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'dataurl', '.woff': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl' } });
