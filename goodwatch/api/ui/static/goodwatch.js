// Draws the charts, reads the page again every 15 s without moving it, and says local times. Nothing works only
// with this script but the charts; the numbers are in the page.
"use strict";

(() => {
  const PAUSED = "goodwatch.paused";
  const root = document.documentElement;
  const views = new Map();
  const remembered = { // storage can be forbidden; then pausing lasts as long as the page
    get: () => { try { return localStorage.getItem(PAUSED); } catch { return null; } },
    set: (value) => { try { localStorage.setItem(PAUSED, value); } catch { /* stays in memory */ } },
  };
  let paused = remembered.get() === "yes";

  // --- charts -------------------------------------------------------------------------------------------------
  function coloured(spec, style) {
    if (Array.isArray(spec)) return spec.map((item) => coloured(item, style));
    if (spec && typeof spec === "object") {
      return Object.fromEntries(
        Object.entries(spec).map(([key, value]) => [key, key === "datasets" ? value : coloured(value, style)]));
    }
    return typeof spec === "string" && spec.startsWith("@") ? style.getPropertyValue("--" + spec.slice(1)).trim() : spec;
  }

  async function draw(figure, spec, style) {
    const place = figure.querySelector(".chart");
    const fresh = document.createElement("div");
    fresh.className = "plot incoming";
    place.append(fresh);
    const drawn = await vegaEmbed(fresh, coloured(spec, style), {
      mode: "vega-lite", ast: true, actions: false, renderer: "svg", defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
      loader: { http: { cache: "no-store" } },
    });
    views.get(figure.id)?.finalize();
    views.set(figure.id, drawn);
    place.replaceChildren(fresh);
    fresh.classList.remove("incoming");
    figure.dataset.drawn = "yes";
  }

  async function drawAll({ keepHovered = false } = {}) {
    const source = document.getElementById("charts-data");
    if (!source || typeof vegaEmbed === "undefined") return;
    const specs = JSON.parse(source.textContent);
    const style = getComputedStyle(root);
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      if (keepHovered && figure.matches(":hover")) continue;
      await draw(figure, specs[figure.dataset.chart], style);
    }
    root.dataset.charts = "drawn";
  }

  // --- reading the page again ---------------------------------------------------------------------------------
  function busy() {
    const typing = document.activeElement?.matches("input, select, textarea");
    return document.hidden || paused || typing || !document.getSelection()?.isCollapsed;
  }

  function replace(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.innerHTML === part.innerHTML) continue;
      const open = new Set([...part.querySelectorAll("details[open][id]")].map((d) => d.id));
      part.innerHTML = other.innerHTML;
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    }
    document.title = fresh.title;
  }

  async function refresh() {
    if (busy()) return;
    const note = document.getElementById("refresh-note");
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(14000) });
      if (!answer.ok) throw new Error(`answer ${answer.status}`);
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      note.textContent = "";
      root.classList.remove("stale");
      localTimes();
      filterRows();
      await drawAll({ keepHovered: true });
    } catch (error) {
      root.classList.add("stale");
      note.textContent = `goodwatch cannot be reached (${error.message}); numbers are old`;
    }
  }

  function showPause() {
    const button = document.getElementById("pause");
    if (!button) return;
    button.hidden = false;
    button.textContent = paused ? "▶ resume" : "❚❚ pause";
    button.setAttribute("aria-pressed", String(paused));
  }

  // --- small things -------------------------------------------------------------------------------------------
  function localTimes() {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      time.title = `${at.toLocaleString()} ${Intl.DateTimeFormat().resolvedOptions().timeZone} (your time)`;
    }
  }

  function filterRows() {
    const field = document.getElementById("filter");
    if (!field) return;
    const wanted = field.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("[data-filter]")) {
      row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
    }
  }

  document.getElementById("pause")?.addEventListener("click", () => {
    paused = !paused;
    remembered.set(paused ? "yes" : "no");
    showPause();
    if (!paused) refresh();
  });
  document.getElementById("filter")?.addEventListener("input", filterRows);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  const every = Number(document.body.dataset.refreshS);
  if (every > 0) {
    showPause();
    setInterval(refresh, every * 1000);
    document.addEventListener("visibilitychange", refresh);
  }
  localTimes();
  filterRows();
  drawAll();
})();
