// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// Serve starts the row's registry and returns host:port. How it misbehaves is
// the row's serve: a word that names the place and one that names the trick.
func (w *World) Serve(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(w.Handler(t))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Handler is the row's registry.
func (w *World) Handler(t testing.TB) http.Handler {
	t.Helper()
	other := httptest.NewServer(http.HandlerFunc(w.image))
	t.Cleanup(other.Close)
	return http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
		path := req.URL.Path[strings.LastIndex(strings.TrimSuffix(req.URL.Path, "/"), "/")+1:]
		switch {
		case strings.Contains(req.URL.Path, "/fleet/manifests/"):
			manifest(out, w.FleetManifest, typeManifest)
		case strings.Contains(req.URL.Path, "/node/manifests/"):
			w.overlay(out, req)
		case strings.Contains(req.URL.Path, "/layer/manifests/"):
			kind := typeManifest
			if w.Row.Serve == "layer as index" {
				kind = typeIndex
			}
			manifest(out, w.LayerManifest, kind)
		case path == w.ConfigDigest:
			out.Write(w.Config)
		case path == w.ImageDigest && w.Row.Serve == "image redirected":
			http.Redirect(out, req, other.URL+req.URL.Path, http.StatusTemporaryRedirect)
		case path == w.ImageDigest && w.Row.Serve == "resume redirected" && req.Header.Get("Range") != "":
			http.Redirect(out, req, other.URL+req.URL.Path, http.StatusTemporaryRedirect)
		case path == w.ImageDigest:
			w.image(out, req)
		default:
			w.blob(out, path)
		}
	})
}

func manifest(out http.ResponseWriter, raw []byte, kind string) {
	out.Header().Set("Content-Type", kind)
	out.Header().Set("ETag", `"`+digestOf(raw)+`"`)
	out.Write(raw)
}

func (w *World) overlay(out http.ResponseWriter, req *http.Request) {
	switch w.Row.Serve {
	case "manifest announced huge":
		out.Header().Set("Content-Type", typeManifest)
		out.Header().Set("Content-Length", "104857600")
		out.Write(w.Manifest)
	case "manifest endless":
		out.Header().Set("Content-Type", typeManifest)
		endless(out)
	case "manifest is a portal":
		out.Header().Set("Content-Type", "text/html")
		fmt.Fprint(out, "<html>please log in</html>")
	case "manifest compressed":
		out.Header().Set("Content-Encoding", "gzip")
		manifest(out, w.Manifest, typeManifest)
	case "manifest under another type":
		manifest(out, w.Manifest, typeIndex)
	default:
		manifest(out, w.Manifest, typeManifest)
	}
}

// image serves the big blob.
func (w *World) image(out http.ResponseWriter, req *http.Request) {
	half := len(w.Image) / 2
	ranged := req.Header.Get("Range") != ""
	switch w.Row.Serve {
	case "image cut for ever":
		out.Header().Set("Content-Length", fmt.Sprint(len(w.Image)))
		if ranged {
			out.Header().Set("Content-Length", fmt.Sprint(len(w.Image)-half))
			out.Header().Set("Content-Range", strings.Replace(req.Header.Get("Range"), "=", " ", 1)+fmt.Sprintf("/%d", len(w.Image)))
			out.WriteHeader(http.StatusPartialContent)
			out.Write(nil)
			return
		}
		out.Write(w.Image[:half])
	case "image announced short":
		out.Write(w.Image[:half])
	case "image announced long":
		out.Write(append(append([]byte(nil), w.Image...), "more"...))
	case "image endless":
		endless(out)
	case "image compressed":
		out.Header().Set("Content-Encoding", "gzip")
		out.Write(w.Image)
	case "resume ignored", "resume elsewhere", "resume refused", "resume redirected", "resume works":
		if !ranged {
			out.Header().Set("Content-Length", fmt.Sprint(len(w.Image)))
			out.Write(w.Image[:half])
			return
		}
		w.resume(out, req, half)
	default:
		out.Write(w.Image)
	}
}

func (w *World) resume(out http.ResponseWriter, req *http.Request, half int) {
	asked := strings.Replace(req.Header.Get("Range"), "=", " ", 1) + fmt.Sprintf("/%d", len(w.Image))
	switch w.Row.Serve {
	case "resume ignored":
		out.Write(w.Image)
	case "resume elsewhere":
		out.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(w.Image)-half-1, len(w.Image)))
		out.WriteHeader(http.StatusPartialContent)
		out.Write(w.Image[:len(w.Image)-half])
	case "resume refused":
		out.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
	default:
		out.Header().Set("Content-Range", asked)
		out.WriteHeader(http.StatusPartialContent)
		out.Write(w.Image[half:])
	}
}

// blob serves the parts of documents that are not inline.
func (w *World) blob(out http.ResponseWriter, digest string) {
	for _, b := range append([][]byte{w.Overlay, w.Fleet}, append(w.Bundles, w.FleetBundles...)...) {
		if digestOf(b) != digest {
			continue
		}
		if string(b) == string(w.Overlay) {
			switch w.Row.Serve {
			case "overlay swapped":
				b = []byte(strings.Replace(string(b), `"value":"10"`, `"value":"99"`, 1))
			case "overlay ends early":
				out.Header().Set("Transfer-Encoding", "chunked")
				b = b[:len(b)-1]
				out.Write(b)
				out.(http.Flusher).Flush()
				return
			}
		}
		out.Write(b)
		return
	}
	http.Error(out, "no such blob", http.StatusNotFound)
}

// endless writes until the client has had enough.
func endless(out http.ResponseWriter) {
	chunk := []byte(strings.Repeat(" ", 64<<10))
	for range 4096 { // 256 MiB, far beyond every cap
		if _, err := out.Write(chunk); err != nil {
			return
		}
	}
}
