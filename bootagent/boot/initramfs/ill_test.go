// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
)

// ailments lists ways in which a registry, a proxy before it or the line to it spoils a good
// answer.
var ailments = map[string]func(w http.ResponseWriter, r *http.Request, good *httptest.ResponseRecorder){
	"a byte now and then": func(w http.ResponseWriter, r *http.Request, good *httptest.ResponseRecorder) {
		for b := range slices.Chunk(good.Body.Bytes(), 1) {
			w.Write(b)
			w.(http.Flusher).Flush()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	},
	"half an answer": func(w http.ResponseWriter, _ *http.Request, good *httptest.ResponseRecorder) {
		w.Write(good.Body.Bytes()[:good.Body.Len()/2])
	},
	"silence": func(_ http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) { <-r.Context().Done() },
	"a reset": func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // else it is an end, which is another ailment
		_ = conn.Close()                     // the client is to see this
	},
	"a page for people": func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		w.Header().Del("Docker-Content-Digest")
		w.Header().Set("Content-Type", "text/html")
		page := "<html><body>Welcome to the guest network. Please log in.</body></html>"
		w.Header().Set("Content-Length", strconv.Itoa(len(page)))
		w.Write([]byte(page))
	},
	"a page under good headers": func(w http.ResponseWriter, _ *http.Request, good *httptest.ResponseRecorder) {
		w.Write(bytes.Repeat([]byte("<"), good.Body.Len()))
	},
	"circles": func(w http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) {
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	},
	"an answer without an end": func(w http.ResponseWriter, r *http.Request, _ *httptest.ResponseRecorder) {
		w.Header().Del("Content-Length")
		for block := make([]byte, 32<<10); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	},
	"an error": func(w http.ResponseWriter, _ *http.Request, _ *httptest.ResponseRecorder) {
		http.Error(w, "over quota", http.StatusServiceUnavailable)
	},
}

// Whatever a registry answers, and to whichever question: a node with a good
// generation on its disk boots that, soon, and does not say that it is current.
func TestAnIllRegistry(t *testing.T) {
	for _, question := range []string{"/node/manifests/", "/layer/manifests/", "/layer/blobs/"} {
		for name, ail := range ailments {
			t.Run(name+" at "+strings.Trim(question, "/"), func(t *testing.T) {
				p := publish(t)
				p.disk.device = "/dev/vda1"
				p.overlay(1, p.layer("good").Overlay.Layer)
				p.boots()
				p.comesUp()
				p.overlay(2, p.layer("newer").Overlay.Layer)
				p.ways.source = p.behind(question, ail)
				p.machine.limits.ask, p.machine.limits.soon = 500*time.Millisecond, 500*time.Millisecond
				begun := time.Now()
				if got := p.boots(); got != 1 || p.choice.source != "cached" || p.choice.sync == "current" {
					t.Errorf("generation %d, %s, %s; want the good one", got, p.choice.source, p.choice.sync)
				}
				if took := time.Since(begun); took > time.Minute { // it would wait for ten
					t.Errorf("that took %s", took)
				}
				if p.choice.detail == "" {
					t.Error("it does not say why")
				}
			})
		}
	}
}

// A registry may also find a way to be slow that no client has thought of: a question has a
// limit of its own.
func TestAQuestionHasALimit(t *testing.T) {
	p := publish(t)
	p.disk.device = "/dev/vda1"
	p.overlay(1, p.layer("good").Overlay.Layer)
	p.boots()
	p.comesUp()
	p.overlay(2, p.layer("newer").Overlay.Layer)
	p.ways.source = mute{p.ways.source}
	p.machine.limits.ask = 500 * time.Millisecond
	begun := time.Now()
	if got := p.boots(); got != 1 || p.choice.source != "cached" || p.choice.sync != "unreachable" {
		t.Errorf("generation %d, %s, %s; want the good one", got, p.choice.source, p.choice.sync)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("that took %s", took)
	}
}

// mute answers nothing until nobody waits any more.
type mute struct{ oci.Source }

func (mute) Manifest(ctx context.Context, _, _, _ string) (oci.Response, error) {
	<-ctx.Done()
	return oci.Response{}, ctx.Err()
}

// behind serves the registry with an ailment in place of some answers.
func (p *published) behind(question string, ail func(http.ResponseWriter, *http.Request, *httptest.ResponseRecorder)) oci.Source {
	p.t.Helper()
	well, err := registry.Handler(p.Registry.Ref().Layout)
	if err != nil {
		p.t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, question) {
			well.ServeHTTP(w, r)
			return
		}
		good := httptest.NewRecorder()
		well.ServeHTTP(good, r)
		maps.Copy(w.Header(), good.Header())
		ail(w, r, good)
	}))
	p.t.Cleanup(s.Close)
	ref, err := oci.ParseRef(s.Listener.Addr().String() + "/metal-a")
	if err != nil {
		p.t.Fatal(err)
	}
	source, err := pull.Open(ref, pull.Options{PlainHTTP: true, Timeout: 200 * time.Millisecond})
	if err != nil {
		p.t.Fatal(err)
	}
	return source
}
