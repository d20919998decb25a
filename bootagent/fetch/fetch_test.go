// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// TestMain makes the test's program one that asks, as the agent is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Verb {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestPrivileges(t *testing.T) {
	require.Root(t)
	holdsNone(t)
}

// TestUnderTheAgentsUnit: the unit leaves the agent what it takes to give up
// privileges.
func TestUnderTheAgentsUnit(t *testing.T) {
	require.Tool(t, "ip")
	if !itemtest.InSystemd(t, itemtest.Confinement(t, systemd.Units, "caisson-agent.service")...) {
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	holdsNone(t)
}

// holdsNone looks at a process while a registry lets it wait. The password is in a
// file that only root can read.
func holdsNone(t *testing.T) {
	seen := make(chan map[string]string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, password, _ := req.BasicAuth(); password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		seen <- look(t)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "auth.json"), fmt.Appendf(nil, `{"auths":{%q:{"username":"n","password":"secret"}}}`, host), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", "/run/notify")
	src, err := Open(spec.Bootstrap{Registry: host + "/metal-a", PlainHTTP: true}, track.Way{Credentials: dir, Silence: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Manifest(t.Context(), oci.RepoNode, "superhost", ""); !errors.Is(err, oci.ErrNotFound) {
		t.Fatalf("Manifest = %v, want what is not found", err)
	}
	got := <-seen
	const none = "0000000000000000"
	for name, want := range map[string]string{
		"Uid": "65534 65534 65534 65534", "Gid": "65534 65534 65534 65534", "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "NoNewPrivs": "1",
		"oom_score_adj": "0", "Max core file size": "0", "Max file size": "0", "Max open files": "64",
		"owner of its memory": "0", // other processes of nobody's cannot read the password in it
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if strings.Contains(got["environ"], "NOTIFY_SOCKET") {
		t.Errorf("its environment is %q", got["environ"])
	}
}

// look returns what the kernel says of all threads of the only child; where they
// differ, both.
func look(t *testing.T) map[string]string {
	self := strconv.Itoa(os.Getpid())
	got := map[string]string{}
	processes, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Error(err)
	}
	for _, name := range processes {
		status, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(status), "\nPPid:\t"+self+"\n") {
			continue // it ended, or is another's
		}
		dir := filepath.Dir(name)
		threads, err := filepath.Glob(filepath.Join(dir, "task/*/status"))
		if err != nil || len(threads) < 2 {
			t.Errorf("%d threads: %v", len(threads), err)
		}
		for _, thread := range threads {
			for line := range strings.Lines(read(t, thread)) {
				key, value, _ := strings.Cut(line, ":")
				value = strings.Join(strings.Fields(value), " ")
				if before, twice := got[key]; twice && before != value {
					value = before + " and " + value
				}
				got[key] = value
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^(Max [a-z ]+?) {2,}(\S+)`).FindAllStringSubmatch(read(t, filepath.Join(dir, "limits")), -1) {
			got[m[1]] = m[2]
		}
		got["oom_score_adj"] = strings.TrimSpace(read(t, filepath.Join(dir, "oom_score_adj")))
		got["environ"] = read(t, filepath.Join(dir, "environ"))
		if info, err := os.Stat(filepath.Join(dir, "mem")); err == nil {
			got["owner of its memory"] = fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
		}
	}
	return got
}

func read(t *testing.T, name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// TestVerdicts has a node meet each registry of the corpus, by itself and through
// processes: what it accepts, and why it refuses the rest, is the same.
func TestVerdicts(t *testing.T) {
	met := 0
	for _, row := range attack.Load(t) {
		if row.Serve == "direct" || strings.HasPrefix(row.Serve, "parse") {
			continue
		}
		met++
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			w := row.Forge(t)
			host := w.Serve(t)
			by := func(open func(spec.Bootstrap, track.Way) (oci.Source, error)) (refusal.Code, error) {
				b := spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: row.Node.Fleet, Registry: host + "/metal-a", PlainHTTP: true,
					Keys: attack.Publics(t, row.Node.Keys), EpochKeys: attack.Publics(t, row.Node.EpochKeys), Threshold: row.Node.Threshold}
				folder, err := state.Open(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				src, err := open(b, track.Way{Clock: trust.Clock{RTC: time.Now()}, Silence: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				f := track.Tracker{Source: src, Folder: folder, Bootstrap: b, Identity: trust.Identity{Node: row.Node.Name, MACs: row.Node.MACs, UUIDs: row.Node.UUIDs},
					Build: row.Node.Build, RTC: func() time.Time { return row.Node.RTC }, Say: t.Logf}
				_, err = f.Sync(t.Context())
				if err == nil {
					_, err = trust.Layer(t.Context(), src, w.LayerDigest)
				}
				if err == nil {
					var image []byte
					image, err = oci.ReadBlob(t.Context(), src, oci.RepoLayer, oci.Descriptor{MediaType: "x", Digest: w.ImageDigest, Size: int64(len(w.Image))}, oci.MaxConfig)
					if err == nil && oci.Digest(image) != w.ImageDigest {
						t.Error("another image")
					}
				}
				return refusal.Of(err), err
			}
			alone, why := by(track.Open)
			if apart, err := by(Open); apart != alone || (err == nil) != (why == nil) {
				t.Errorf("a process of its own says %q (%v), the agent alone %q (%v)", apart, err, alone, why)
			}
		})
	}
	if met < 100 {
		t.Errorf("%d registries, more belong here", met)
	}
}

// TestLiars starts programs that are not what they should be: what they say has
// no more weight than a registry's word, and none of them holds the agent.
func TestLiars(t *testing.T) {
	require.Slow(t)
	blob := []byte("content")
	for name, c := range map[string]struct {
		program  string
		manifest string // what the error of Manifest says, "" for none
		blob     string // of ReadBlob
	}{
		"other content":      {"printf other; echo '{}' >&2", "is sha256:", "bytes"},
		"endless":            {"yes; echo '{}' >&2", "more than", "is sha256:"},
		"says nothing":       {":", "says", "says"},
		"rubbish":            {"echo rubbish >&2", "rubbish", "rubbish"},
		"endless rubbish":    {"yes >&2", "deadline", "deadline"},
		"a word too much":    {"echo '{}{}' >&2", "says", "says"},
		"fails":              {"echo why >&2; exit 3", "exit status 3: why", "exit status 3: why"},
		"is killed":          {"kill -9 $$", "killed", "killed"},
		"unchanged, unasked": {`echo '{"NotModified":true}' >&2`, "is sha256:", "bytes"},
		"invents a code":     {`echo '{"Error":"no","Refusal":"obey"}' >&2`, "no", "no"},
		"invents a kind":     {`echo '{"Error":"no","Kind":"obey"}' >&2`, "no", "no"},
		"never ends":         {"exec 1>&-; sleep 60", "deadline", "deadline"},
		"says nothing yet":   {"sleep 60", "deadline", "deadline"},
	} {
		// Written before any case runs: a process that another case starts meanwhile
		// inherits the open file, and the kernel runs no program that is open for writing.
		program := filepath.Join(t.TempDir(), "liar")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.program+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &source{program: program}
			limit := time.Minute // a busy machine starts programs slowly
			if c.manifest == "deadline" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begun := time.Now()
			_, err := s.Manifest(ctx, oci.RepoLayer, oci.Digest(blob), "")
			if err == nil || !strings.Contains(err.Error(), c.manifest) || refusal.Of(err) == "obey" {
				t.Errorf("Manifest: %v, want %q", err, c.manifest)
			}
			_, err = oci.ReadBlob(ctx, s, oci.RepoLayer, oci.Describe("x", blob).Bare(), 100)
			if err == nil || !strings.Contains(err.Error(), c.blob) || refusal.Of(err) == "obey" {
				t.Errorf("ReadBlob: %v, want %q", err, c.blob)
			}
			if took := time.Since(begun); took > limit+2*time.Minute {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestClose ends a process whose answer is not wanted any more.
func TestClose(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = w.Write([]byte("a")) // the process may be gone
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		close(gone)
	}))
	defer server.Close()
	src, err := Open(spec.Bootstrap{Registry: strings.TrimPrefix(server.URL, "http://") + "/metal-a", PlainHTTP: true}, track.Way{Silence: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	body, err := src.Blob(t.Context(), oci.RepoLayer, oci.Descriptor{Digest: oci.Digest([]byte("ab")), Size: 2}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(body, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("it goes on asking")
	}
}

// TestAnotherPlace: a registry that is not reached does not keep content from who has another
// place to ask: a mirror, or a medium.
func TestAnotherPlace(t *testing.T) {
	d := oci.Describe(oci.TypeUKI, []byte("a loader"))
	mirror := fixture.NewFleet(t)
	if err := mirror.Registry.PutData(t.Context(), oci.RepoLoader, d); err != nil {
		t.Fatal(err)
	}
	handler, err := registry.Handler(mirror.Registry.Ref().Layout)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	const nobody = "127.0.0.1:1/metal-a" // listens there
	ask := func(mirrors ...string) ([]byte, error) {
		src, err := Open(spec.Bootstrap{Registry: nobody, Mirrors: mirrors, PlainHTTP: true}, track.Way{Silence: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		body, err := oci.Anywhere(t.Context(), src, func(place oci.Source) (io.ReadCloser, error) {
			return place.Blob(t.Context(), oci.RepoLoader, d.Bare(), 0)
		})
		if err != nil {
			return nil, err
		}
		defer body.Close() // only read
		data, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		return data, nil
	}
	if data, err := ask(strings.TrimPrefix(server.URL, "http://") + "/metal-a"); err != nil || string(data) != "a loader" {
		t.Errorf("from the mirror: %q, %v", data, err)
	}
	if _, err := ask(); err == nil {
		t.Error("what nobody has is there, until it is read")
	}
}

// TestOpen says at once what can never be asked.
func TestOpen(t *testing.T) {
	for _, b := range []spec.Bootstrap{{Registry: "no registry"}, {Registry: "r.example/a", Mirrors: []string{"::"}}, {Registry: "oci:" + t.TempDir() + "/none"}} {
		if _, err := Open(b, track.Way{Silence: time.Second}); err == nil {
			t.Errorf("Open(%+v) is content", b)
		}
	}
}

// TestAnEndIsTold: a registry that takes a connection and ends it without a word, as a balancer
// without a backend does, is told from one that is not reached, and from a blob that is short.
func TestAnEndIsTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // it ends who accepts
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<16)) // else the kernel resets it
			_ = c.Close()                      // it was only read
		}
	}()
	for _, plain := range []bool{true, false} {
		src, err := Open(spec.Bootstrap{Registry: l.Addr().String() + "/a", PlainHTTP: plain}, track.Way{Silence: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Manifest(t.Context(), oci.RepoFleet, "current", ""); !errors.Is(err, io.EOF) {
			t.Errorf("plain %t: %v", plain, err)
		}
		if _, err := src.Blob(t.Context(), oci.RepoLayer, oci.Describe("x", []byte("content")).Bare(), 0); !errors.Is(err, io.EOF) {
			t.Errorf("plain %t: a blob: %v", plain, err)
		}
	}
}

// FuzzOutcome takes what a process says for text.
func FuzzOutcome(f *testing.F) {
	for _, said := range []string{`{}`, `{"Error":"x","Kind":"slow"}`, `{"Error":"x","Refusal":"digest"}`, "x"} {
		f.Add([]byte(said))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		o, err := parseOutcome(said)
		if err != nil {
			return
		}
		err = o.err()
		if (err == nil) != (o.Error == "") {
			t.Errorf("%q is %v", said, err)
		}
		if code := refusal.Of(err); code != "" && !slices.Contains(refusal.Codes(), code) {
			t.Errorf("%q is the unknown refusal %q", said, code)
		}
		if back := outcomeOf(fmt.Errorf("asked: %w", told{"x", kinds[o.Kind]})); kinds[o.Kind] != nil && back.Kind != o.Kind {
			t.Errorf("kind %q becomes %q", o.Kind, back.Kind)
		}
	})
}

// TestRanges: one process brings all the parts, and says why it could not.
func TestRanges(t *testing.T) {
	data := []byte(strings.Repeat("0123456789", 1000))
	d := oci.Descriptor{Digest: oci.Digest(data), Size: int64(len(data))}
	parts := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !parts {
			req.Header.Del("Range")
		}
		http.ServeContent(w, req, "", time.Time{}, strings.NewReader(string(data)))
	}))
	defer server.Close()
	src, err := Open(spec.Bootstrap{Registry: strings.TrimPrefix(server.URL, "http://"), PlainHTTP: true}, track.Way{Clock: trust.Clock{RTC: time.Now()}, Silence: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	read := func() (string, error) {
		return oci.Anywhere(t.Context(), src, func(place oci.Source) (string, error) {
			body, err := place.(oci.Ranger).Ranges(t.Context(), oci.RepoLayer, d, []oci.Span{{From: 3, To: 7}, {From: 9_990, To: 10_000}})
			if err != nil {
				return "", err
			}
			defer body.Close() // read-only
			got, err := io.ReadAll(body)
			return string(got), err
		})
	}
	if got, err := read(); err != nil || got != "34560123456789" {
		t.Errorf("%q, %v", got, err)
	}
	parts = false
	if got, err := read(); refusal.Of(err) != refusal.Range || got != "" {
		t.Errorf("from a place that serves no parts: %q, %v", got, err)
	}
}
