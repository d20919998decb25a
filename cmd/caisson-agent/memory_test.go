// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// peak is the budget of docs/design.md for the agent's memory, in KiB. The agent
// holds to it, and each process that it asks by.
const peak = 24 << 10

// TestDocumentsAreCheap runs the agent against registries that fill each document
// that a node reads, up to its cap, with what costs a reader most, and measures
// what the agent took. It must hold before any signature was looked at: who can
// answer a node's request could otherwise have the kernel kill what runs beside
// the agent. Beyond the caps below are only a layer's description and images, whose
// digest and size were signed.
func TestDocumentsAreCheap(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	t.Run("all is well", func(t *testing.T) {
		if out := isCheap(t, goodWorld(t), "wrong-machine"); strings.Contains(out, "fleet:current is not used") {
			t.Errorf("the agent says %q", out)
		}
	})
	for name, body := range fullManifests(oci.MediaTypeManifest, oci.TypeOverlay) {
		t.Run("overlay/"+name, func(t *testing.T) {
			w := goodWorld(t)
			w.Manifest = body
			isCheap(t, w, "refused (")
		})
	}
	for name, body := range fullManifests(oci.MediaTypeManifest, oci.TypeFleet) {
		t.Run("fleet current/"+name, func(t *testing.T) {
			w := goodWorld(t)
			w.FleetManifest = body
			isCheap(t, w, "fleet:current is not used")
		})
	}
	for name, body := range fullManifests(oci.MediaTypeIndex, "") {
		t.Run("index/"+name, func(t *testing.T) {
			w := goodWorld(t)
			w.Manifest = body
			isCheap(t, w, "refused (")
		})
	}
	for name, junk := range fullTexts {
		t.Run("blobs/"+name, func(t *testing.T) {
			w := goodWorld(t)
			w.Overlay = fill(oci.MaxOverlay, junk[0], junk[1], junk[2])
			w.Bundles = nil
			for i := range oci.MaxBundles {
				w.Bundles = append(w.Bundles, fill(oci.MaxBundle-8*i, junk[0], junk[1], junk[2]))
			}
			w.Manifest = bare(oci.TypeOverlay, w.Overlay, w.Bundles)
			isCheap(t, w, "refused (")
		})
		t.Run("blobs of fleet current/"+name, func(t *testing.T) {
			w := goodWorld(t)
			w.Fleet = fill(oci.MaxFleet, junk[0], junk[1], junk[2])
			w.FleetBundles = [][]byte{fill(oci.MaxBundle, junk[0], junk[1], junk[2])}
			w.FleetManifest = bare(oci.TypeFleet, w.Fleet, w.FleetBundles)
			isCheap(t, w, "fleet:current is not used")
		})
	}
}

// fullTexts are JSON by which a small text takes much memory: what stands before,
// what is repeated, what stands after.
var fullTexts = map[string][3]string{
	"many values": {`{"x":[`, `{},`, `{}]}`},
	"deep":        {``, `[`, ``},
	"long text":   {`{"x":"`, `x`, `"}`},
	"escapes":     {`{"x":"`, `\u0041`, `"}`},
}

// fullManifests are manifests or indexes as long as they may be.
func fullManifests(mediaType, artifactType string) map[string][]byte {
	config := string(oci.Encode(oci.Manifest{Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty)}))
	config = config[strings.Index(config, `"config"`):strings.Index(config, `,"layers"`)]
	head, list := `{"schemaVersion":2,"mediaType":"`+mediaType+`","artifactType":"`+artifactType+`",`+config+`,`, `"layers":[`
	if mediaType == oci.MediaTypeIndex {
		head, list = `{"schemaVersion":2,"mediaType":"`+mediaType+`",`, `"manifests":[`
	}
	descriptor := `{"mediaType":"x","digest":"` + oci.Digest(nil) + `","size":1},`
	full := func(before, unit, after string) []byte { return fill(oci.MaxManifest, before, unit, after) }
	distinct := func(before, after string) []byte {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len()+len(after)+16 < oci.MaxManifest; i++ {
			fmt.Fprintf(&b, `"%x":1,`, i)
		}
		return []byte(b.String() + after)
	}
	return map[string][]byte{
		"many descriptors":       full(head+list, `{},`, `{}]}`),
		"many annotations":       distinct(head+list+`],"annotations":{`, `"z":1}}`),
		"many unknown keys":      distinct(head+list+`],`, `"z":1}`),
		"many numbers":           full(head+list+`],"x":[`, `0,`, `0]}`),
		"values to the cap":      full(head+list+`],"x":[`+strings.Repeat(`[`+strings.Repeat(`0,`, 4090)+`0],`, 15)+`0]`, ` `, `}`),
		"deep":                   full(head+list+`],"x":`, `[`, ``),
		"long text":              full(head+list+`],"x":"`, `x`, `"}`),
		"escapes":                full(head+list+`],"x":"`, `\u0041`, `"}`),
		"long inline data":       full(head+list+`{"mediaType":"x","digest":"`+oci.Digest(nil)+`","size":1,"data":"`, `AAAA`, `"}]}`),
		"descriptors to the cap": full(head+list+strings.Repeat(descriptor, 4095), ` `, `{}]}`),
		"good descriptors":       full(head+list+strings.Repeat(descriptor, 4095)+strings.TrimSuffix(descriptor, ",")+`]`, ` `, `}`),
		"longer than the cap":    []byte(strings.Repeat(" ", 8<<20)),
	}
}

func fill(size int, before, unit, after string) []byte {
	n := max(1, (size-len(before)-len(after))/len(unit))
	return []byte(before + strings.Repeat(unit, n) + after)
}

// bare is the manifest of a document whose parts are blobs of their own.
func bare(documentType string, doc []byte, bundles [][]byte) []byte {
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: documentType,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty), Layers: []oci.Descriptor{oci.Describe(documentType, doc).Bare()}}
	for _, b := range bundles {
		m.Layers = append(m.Layers, oci.Describe(oci.TypeBundle, b).Bare())
	}
	return oci.Encode(m)
}

func goodWorld(t *testing.T) *attack.World {
	t.Helper()
	return attack.Load(t)[0].Forge(t)
}

// isCheap has the agent plan by what a world serves: it must say want, and stay
// within its budget.
func isCheap(t *testing.T, w *attack.World, want string) (said string) {
	t.Helper()
	server := httptest.NewServer(chunked(w.Handler(t)))
	defer server.Close()
	root := t.TempDir()
	for name, text := range map[string]string{"etc/machine-id": "0123456789abcdef0123456789abcdef\n", "proc/self/mountinfo": "", "operator.pub": attack.Public(t, "operator"), "epoch.pub": attack.Public(t, "epoch")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755), os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	status := filepath.Join(root, "peak")
	var own, asking int
	for range 3 { // a collector that was kept from its processor leaves more behind: what a document costs is in each run
		agent := exec.Command("caisson-agent", "plan", "--from", strings.TrimPrefix(server.URL, "http://")+"/metal-a", "--plain-http", "--fleet", "metal-a",
			"--key", filepath.Join(root, "operator.pub"), "--epoch-key", filepath.Join(root, "epoch.pub"), "--node", "superhost")
		agent.Env = append(os.Environ(), "ROOT="+root, "PEAK="+status)
		out, err := agent.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("the agent says %q, want %q", out, want)
		}
		data, err := os.ReadFile(status)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(data), &own, &asking); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d KiB, and %d KiB to ask: %.200s", own, asking, out)
		if said = string(out); own <= peak && asking <= peak {
			return said
		}
	}
	t.Errorf("%d KiB at its peak, and %d KiB to ask; the budget is %d", own, asking, peak)
	return said
}

// chunked announces no length of what a handler sends.
func chunked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.ServeHTTP(flushed{w}, req) })
}

type flushed struct{ http.ResponseWriter }

func (f flushed) Write(p []byte) (int, error) {
	f.ResponseWriter.(http.Flusher).Flush()
	return f.ResponseWriter.Write(p)
}

// notePeak writes the greatest resident sizes of this process and of those that it
// started, in KiB, to a file. The second is not less than what this process had
// when it started one: wait4(2) counts from before exec.
func notePeak(name string) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	own, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	var asking syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &asking); err != nil {
		panic(err)
	}
	if err := os.WriteFile(name, fmt.Append(nil, own, " ", asking.Maxrss), 0o644); err != nil {
		panic(err)
	}
}
