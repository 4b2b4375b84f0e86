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

  const draw = (width) => {
    const family = getComputedStyle(document.body).fontFamily;
    for (const place of places) {
      const { data, layout } = resolved(figures[place.dataset.figure]);
      const shown = { ...layout, font: { ...layout.font, family }, ...(width ? { width, autosize: false } : {}) };
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
