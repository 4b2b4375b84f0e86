"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const places = [...document.querySelectorAll("[data-figure]")];
  const isTouched = matchMedia("(pointer: coarse)").matches;
  const PRINTED_PX = 684; // what the width of a sheet leaves

  root.classList.add("js");

  // Plotly knows no CSS variables: they are resolved as the page shows them now.
  const probe = document.body.appendChild(document.createElement("span"));
  probe.hidden = true;
  const resolved = (value) => {
    if (typeof value === "string" && value.startsWith("var(--")) {
      probe.style.color = value;
      return getComputedStyle(probe).color;
    }
    if (Array.isArray(value)) return value.map(resolved);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, resolved(inner)]));
  };

  // What all figures have in common; a figure's own layout says the rest.
  const ink = { color: "var(--ink)", size: 13 };
  const muted = { color: "var(--muted)", size: 12 };
  const axis = {
    gridcolor: "var(--grid)",
    linecolor: "var(--rule)",
    zeroline: false,
    automargin: true,
    tickfont: muted,
    title: { font: muted, standoff: 10 },
  };
  const common = {
    margin: { l: 8, r: 12, t: 12, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: ink,
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: "var(--surface)", bordercolor: "var(--rule)", font: ink, align: "left" },
    xaxis: axis,
    yaxis: axis,
    annotationdefaults: {
      xref: "paper",
      showarrow: false,
      font: muted,
      xanchor: "left",
      yanchor: "bottom",
      align: "left",
    },
  };
  const titled = ([name, value]) => [
    name,
    typeof value?.title === "string" ? { ...value, title: { text: value.title } } : value,
  ];

  const draw = (width) => {
    const look = resolved(common);
    look.font.family = getComputedStyle(document.body).fontFamily;
    for (const place of places) {
      const { data, layout } = resolved(figures[place.dataset.figure]);
      const own = Object.fromEntries(Object.entries(layout).map(titled));
      const shown = { ...own, template: { layout: look }, ...(width ? { width, autosize: false } : {}) };
      if (isTouched) shown.dragmode = false;
      Plotly.react(place, data, shown, { displayModeBar: false, responsive: !width });
    }
  };

  const button = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  };
  const follow = () => {
    label();
    draw();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    follow();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", follow);
  button.hidden = false;

  for (const copy of document.querySelectorAll("[data-copies]")) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      const source = document.getElementById(copy.dataset.copies);
      let said = "Copied";
      try {
        await navigator.clipboard.writeText(source.textContent);
      } catch {
        getSelection().selectAllChildren(source); // it may be forbidden: then the user presses Ctrl-C
        said = "Selected";
      }
      copy.textContent = said;
      document.getElementById("copied").textContent = `${said}: ${source.textContent}`;
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
  }

  for (const link of document.querySelectorAll('.figure a[href^="#"]')) {
    link.addEventListener("click", () => { document.getElementById(link.hash.slice(1)).open = true; });
  }

  // On paper everything is open, light, and as wide as the sheet.
  let closed = [];
  let theme;
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    theme = root.dataset.theme;
    for (const details of closed) details.open = true;
    root.dataset.theme = "light";
    draw(PRINTED_PX);
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    draw();
  });

  follow();
})();
