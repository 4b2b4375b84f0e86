"use strict";
(() => {
  const form = document.getElementById("form");
  const reports = [...document.querySelectorAll("[data-report]")];
  const place = `marks ${reports.map((report) => report.dataset.report).join(" ")}`;

  // A browser may forbid pages of the disk to keep anything: then they are lost with the page.
  const kept = () => {
    try {
      return JSON.parse(localStorage.getItem(place)) || {};
    } catch {
      return {};
    }
  };
  const keep = () => {
    try {
      localStorage.setItem(place, JSON.stringify(Object.fromEntries(new FormData(form))));
    } catch {
      return;
    }
  };

  const mark = (id) => new FormData(form).get(id) || "";
  const note = (id) => form.elements[`note-${id}`].value.trim();
  const marks = () =>
    Object.fromEntries(
      reports
        .map((report) => report.dataset.report)
        .filter((id) => mark(id) || note(id))
        .map((id) => [id, { mark: mark(id), note: note(id) }]),
    );

  const tell = () => {
    const marked = reports.filter((report) => mark(report.dataset.report)).length;
    document.getElementById("progress").textContent = `${marked} of ${reports.length} marked`;
  };

  for (const [name, value] of Object.entries(kept())) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  tell();
  form.addEventListener("input", () => {
    keep();
    tell();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const reader = form.elements.reader.value.trim();
    const told = { format: Number(form.dataset.format), reader, marks: marks() };
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(told, null, 1)], { type: "application/json" }));
    link.download = `answers-${reader}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
})();
