// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/relay"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
)

// rack is a registry, a relay before it, and what the relay asked the registry.
type rack struct {
	*testing.T
	reg   *registry.Registry
	dir   string
	url   string       // of the relay
	far   string       // of the registry
	sent  atomic.Int64 // bytes that the registry sent
	serve http.Handler
	now   time.Time

	mu     sync.Mutex
	asked  []string
	before func(w http.ResponseWriter, req *http.Request) bool // answers in the place of the registry
}

func newRack(t *testing.T, most int64) *rack {
	t.Helper()
	layout := t.TempDir()
	reg, err := registry.Open("oci:"+layout, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rack{T: t, reg: reg, dir: filepath.Join(t.TempDir(), "kept"), now: time.Unix(1e9, 0)}
	r.publish("a", "1")
	h, err := registry.Handler(layout)
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		if strings.Count(req.URL.Path, "/") > 2 {
			r.asked = append(r.asked, req.Method+" "+req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:])
		}
		before := r.before
		r.mu.Unlock()
		if before == nil || !before(w, req) {
			h.ServeHTTP(&counting{w, &r.sent}, req)
		}
	}))
	t.Cleanup(behind.Close)
	r.far = behind.URL
	from, err := registry.Open(behind.Listener.Addr().String()+"/metal", registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.serve, err = relay.Handler(t.Context(), from, relay.Options{Dir: r.dir, Most: most, Fresh: time.Minute, Say: t.Logf,
		Now: func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }}); err != nil {
		t.Fatal(err)
	}
	near := httptest.NewServer(r.serve)
	t.Cleanup(near.Close)
	r.url = near.URL
	return r
}

// counting counts the bytes of an answer's body.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counting) Write(data []byte) (int, error) {
	n, err := c.ResponseWriter.Write(data)
	c.n.Add(int64(n))
	return n, err
}

// publish has a node's tag lead to a content.
func (r *rack) publish(node, content string) (digest string) {
	r.Helper()
	raw, blobs := oci.OverlayManifest([]byte(content), []byte("{}"))
	for _, b := range blobs {
		if err := r.reg.PutData(r.Context(), "node", b); err != nil {
			r.Fatal(err)
		}
	}
	digest, err := r.reg.PutManifest(r.Context(), "node", oci.MediaTypeManifest, raw, node)
	if err != nil {
		r.Fatal(err)
	}
	return digest
}

// put stores an image of so many bytes.
func (r *rack) put(size int) (data []byte, digest string) {
	r.Helper()
	data = make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size)})
	random.Read(data) // never fails
	d := oci.Descriptor{MediaType: "application/octet-stream", Digest: oci.Digest(data), Size: int64(size), Data: data}
	if err := r.reg.PutData(r.Context(), "layer", d); err != nil {
		r.Fatal(err)
	}
	return data, d.Digest
}

func (r *rack) answers(before func(w http.ResponseWriter, req *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = before
}

// dead is a registry that gives no answer.
func dead(w http.ResponseWriter, _ *http.Request) bool {
	w.WriteHeader(http.StatusServiceUnavailable)
	return true
}

func (r *rack) later(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// count returns how often the registry was asked for something, and forgets it.
func (r *rack) count(what string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.asked {
		if a == what {
			n++
		}
	}
	r.asked = nil
	return n
}

// get asks the relay, with pairs of header and value.
func (r *rack) get(path string, headers ...string) (*http.Response, []byte, error) {
	r.Helper()
	return r.getFrom(r.url, path, headers...)
}

// getFrom asks the relay or the registry.
func (r *rack) getFrom(url, path string, headers ...string) (*http.Response, []byte, error) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url+"/v2/metal/"+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close() // only read
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

// TestAnImageCrossesOnce: forty machines ask for an image while it arrives, some of them for its
// rest alone; the registry is asked once, and not at all by those who come later.
func TestAnImageCrossesOnce(t *testing.T) {
	r := newRack(t, 1<<30)
	data, digest := r.put(3<<20 + 17)
	half, rest := make(chan bool), make(chan bool)
	r.answers(func(w http.ResponseWriter, req *http.Request) bool {
		if !strings.HasSuffix(req.URL.Path, digest) || req.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:len(data)/2])
		w.(http.Flusher).Flush()
		close(half)
		<-rest
		w.Write(data[len(data)/2:])
		return true
	})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			from, headers := 0, []string(nil)
			if i%4 == 3 {
				from = 1 << 19
				headers = []string{"Range", fmt.Sprintf("bytes=%d-", from)}
			}
			resp, got, err := r.get("layer/blobs/"+digest, headers...)
			if err != nil || !bytes.Equal(got, data[from:]) || resp.StatusCode != map[bool]int{true: 200, false: 206}[from == 0] {
				t.Errorf("from %d: %v, %d bytes, %v", from, resp, len(got), err)
			}
		})
	}
	<-half
	close(rest)
	all.Wait()
	if n := r.count("GET " + digest); n != 1 {
		t.Errorf("it crossed %d times", n)
	}
	r.answers(dead)
	resp, got, err := r.get("layer/blobs/"+digest, "Range", "bytes=5-8")
	if err != nil || resp.StatusCode != 206 || !bytes.Equal(got, data[5:9]) || r.count("GET "+digest) != 0 {
		t.Errorf("%v, %q, %v", resp, got, err)
	}
}

// TestTags: the answer for a tag counts for a while, for all; an old one is asked for again, and
// without an answer of the registry there is none.
func TestTags(t *testing.T) {
	r := newRack(t, 1<<30)
	is := func(want string, asked int) {
		t.Helper()
		resp, _, err := r.get("node/manifests/a")
		if err != nil || resp.Header.Get("Docker-Content-Digest") != want || r.count("GET a") != asked {
			t.Errorf("%v, %v; want %s", resp, err, want)
		}
	}
	first := r.publish("a", "1")
	is(first, 1)
	second := r.publish("a", "2")
	is(first, 0)
	r.later(time.Minute)
	is(second, 1)
	if resp, data, err := r.get("node/manifests/a", "If-None-Match", `"`+second+`"`); err != nil || resp.StatusCode != http.StatusNotModified || len(data) > 0 {
		t.Errorf("%v, %v", resp, err)
	}
	r.later(time.Minute)
	unchanged := 0
	r.answers(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("If-None-Match") != "" {
			unchanged++
		}
		return false
	})
	is(second, 1)
	if unchanged != 1 {
		t.Error("it is sent again")
	}
	if resp, _, err := r.get("node/manifests/none"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", resp, err)
	}
	r.later(time.Minute)
	r.answers(dead)
	if resp, _, err := r.get("node/manifests/a"); err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Errorf("an old answer is given: %v, %v", resp, err)
	}
	if resp, _, err := r.get("node/manifests/" + second); err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%v, %v", resp, err) // nobody has asked by the digest
	}
	for _, path := range []string{"node/tags/list", "layer/blobs/latest", "layer/referrers/" + second} {
		if resp, _, err := r.get(path); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	if resp, err := http.Post(r.url+"/v2/metal/node/blobs/uploads/", "", nil); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestOtherRepositories: the registry is asked for what nodes ask for, whatever strangers name: for each
// name it may have the relay log in, and what came of that is kept.
func TestOtherRepositories(t *testing.T) {
	r := newRack(t, 1<<30)
	digest := r.publish("a", "1")
	for _, repo := range []string{oci.RepoReport, "x", strings.Repeat("x", 8000)} {
		for _, what := range []string{"/manifests/a", "/manifests/" + digest, "/blobs/" + digest} {
			if resp, _, err := r.get(repo + what); err != nil || resp.StatusCode != http.StatusNotFound {
				t.Errorf("%.20s%s: %v, %v", repo, what, resp, err)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) > 0 {
		t.Errorf("the registry was asked: %.200q", r.asked)
	}
}

// TestWrongContent: content that its digest does not name is an answer that is cut, and is not kept;
// a file that has changed is fetched again.
func TestWrongContent(t *testing.T) {
	r := newRack(t, 1<<30)
	data, digest := r.put(100_000)
	r.answers(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodGet || !strings.HasSuffix(req.URL.Path, digest) {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(bytes.Repeat([]byte("x"), len(data)))
		return true
	})
	if resp, got, err := r.get("layer/blobs/" + digest); err == nil {
		t.Errorf("%v, %d bytes", resp, len(got))
	}
	if left, err := os.ReadDir(r.dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	r.answers(nil)
	if _, got, err := r.get("layer/blobs/" + digest); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	name := filepath.Join(r.dir, strings.TrimPrefix(digest, "sha256:"))
	if err := os.WriteFile(name, []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+"2.part", []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := relay.Handler(t.Context(), r.reg, relay.Options{Dir: r.dir, Most: 1 << 30, Fresh: time.Minute, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	again.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/layer/blobs/"+digest, nil))
	if !bytes.Equal(w.Body.Bytes(), data) {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
	if _, err := os.Stat(name + "2.part"); !os.IsNotExist(err) {
		t.Errorf("what a process left: %v", err)
	}
}

// TestRoom: what was not asked for longest leaves first, and what is larger than all is not kept.
func TestRoom(t *testing.T) {
	r := newRack(t, 250_000)
	var images []string
	for i := range 3 {
		_, digest := r.put(100_000 + i)
		images = append(images, digest)
		if _, _, err := r.get("layer/blobs/" + digest); err != nil {
			t.Fatal(err)
		}
		r.later(time.Second)
		if _, _, err := r.get("layer/blobs/" + images[0]); err != nil { // stays
			t.Fatal(err)
		}
		r.later(time.Second)
	}
	r.count("")
	r.answers(dead)
	for i, digest := range images {
		resp, _, err := r.get("layer/blobs/" + digest)
		if here := err == nil && resp.StatusCode == 200; here != (i != 1) {
			t.Errorf("image %d: %v, %v", i, resp, err)
		}
	}
	r.answers(nil)
	_, large := r.put(300_000)
	if resp, _, err := r.get("layer/blobs/" + large); err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestAManifestLeaves: who asks for a manifest just when it makes room for others gets it.
func TestAManifestLeaves(t *testing.T) {
	r := newRack(t, 1<<30)
	digest := r.publish("a", "1")
	name := filepath.Join(r.dir, strings.TrimPrefix(digest, "sha256:"))
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_ = os.Remove(name) // it may not be there
			}
		}
	}()
	for range 300 {
		if resp, data, err := r.get("node/manifests/a"); err != nil || resp.StatusCode != http.StatusOK || oci.Digest(data) != digest {
			t.Errorf("%v, %d bytes, %v", resp, len(data), err)
			break
		}
	}
	close(end)
	<-ended
}

// TestAsANode: a node reads through the relay, and goes on with its mirror, which is the registry,
// where that gives no answer any more.
func TestAsANode(t *testing.T) {
	r := newRack(t, 1<<30)
	data, digest := r.put(50_000)
	ref, err := oci.ParseRef(strings.TrimPrefix(r.url, "http://") + "/metal")
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(mustHandler(t, r.reg.Ref().Layout))
	defer behind.Close()
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true, Mirrors: []string{behind.Listener.Addr().String() + "/metal"}})
	if err != nil {
		t.Fatal(err)
	}
	d := oci.Descriptor{MediaType: "application/octet-stream", Digest: digest, Size: int64(len(data))}
	for range 2 {
		resp, err := src.Manifest(t.Context(), oci.RepoNode, "a", "")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := src.Manifest(t.Context(), oci.RepoNode, "a", resp.ETag); err != nil || !again.NotModified {
			t.Errorf("%+v, %v", again, err)
		}
		if got, err := oci.ReadBlob(t.Context(), src, oci.RepoLayer, d, 1<<20); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		r.later(time.Hour)
		r.answers(dead)
	}
}

func mustHandler(t *testing.T, dir string) http.Handler {
	t.Helper()
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
