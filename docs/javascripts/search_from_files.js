// The theme searches in a worker, and no browser lets a page that was opened from the disk start one.
// For such a page, the worker's script runs in a hidden frame instead.
if (location.protocol === "file:") {
  // The worker's script asks for this name, and then looks for its languages beside itself.
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.document.open();
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.isLoaded = new Promise((resolve) => this.inside.addEventListener("load", resolve));
      this.inside.document.write(`<script src="${url}"></script>`);
      this.inside.document.close();
    }

    postMessage(data) {
      this.isLoaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
