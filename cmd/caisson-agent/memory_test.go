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
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/attack"
)

// peak is the budget of docs/design.md for the agent's memory, in KiB.
const peak = 24 << 10

// TestManifestsAreCheap runs the agent against registries that fill a manifest,
// up to the cap, with what costs a reader most, and measures what the agent took.
// It must hold before any signature was looked at: whoever can answer a node's
// request could otherwise have the kernel kill what runs beside the agent.
func TestManifestsAreCheap(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "operator.pub")
	if err := os.WriteFile(key, []byte(attack.Public(t, "operator")), 0o644); err != nil {
		t.Fatal(err)
	}
	const head = `{"schemaVersion":2,"mediaType":"` + oci.MediaTypeManifest + `","artifactType":"` + oci.TypeOverlay + `"`
	config := string(oci.Encode(oci.Manifest{Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty)}))
	config = config[strings.Index(config, `"config"`):strings.Index(config, `,"layers"`)]
	fill := func(before, unit, after string) string {
		return before + strings.Repeat(unit, (oci.MaxManifest-len(before)-len(after))/len(unit)) + after
	}
	distinct := func(before, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len()+len(after)+16 < oci.MaxManifest; i++ {
			fmt.Fprintf(&b, `"%x":1,`, i)
		}
		return b.String() + after
	}
	for name, body := range map[string]string{
		"many descriptors":       fill(head+`,`+config+`,"layers":[`, `{},`, `{}]}`),
		"many annotations":       distinct(head+`,`+config+`,"layers":[],"annotations":{`, `"z":1}}`),
		"many unknown keys":      distinct(head+`,`+config+`,"layers":[],`, `"z":1}`),
		"many numbers":           fill(head+`,`+config+`,"layers":[],"x":[`, `0,`, `0]}`),
		"deep":                   fill(head+`,`+config+`,"layers":[],"x":`, `[`, ``),
		"long text":              fill(head+`,`+config+`,"layers":[],"x":"`, `x`, `"}`),
		"long inline data":       fill(head+`,`+config+`,"layers":[{"mediaType":"x","digest":"`+oci.Digest(nil)+`","size":1,"data":"`, `AAAA`, `"}]}`),
		"descriptors to the cap": fill(head+`,`+config+`,"layers":[`+strings.Repeat(`{"mediaType":"x","digest":"`+oci.Digest(nil)+`","size":1},`, 4095), ` `, `{}]}`),
		"longer than the cap":    strings.Repeat(" ", 8<<20),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", oci.MediaTypeManifest)
				w.(http.Flusher).Flush()     // no length is announced
				_, _ = w.Write([]byte(body)) // the agent may have had enough
			}))
			defer server.Close()
			agent := exec.Command("caisson-agent", "plan", "--from", strings.TrimPrefix(server.URL, "http://"), "--plain-http", "--fleet", "metal-a", "--key", key, "--node", "superhost")
			root := t.TempDir()
			for name, text := range map[string]string{"etc/machine-id": "0123456789abcdef0123456789abcdef\n", "proc/self/mountinfo": ""} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755), os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			status := filepath.Join(root, "peak")
			agent.Env = append(os.Environ(), "ROOT="+root, "PEAK="+status)
			out, err := agent.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "refused (") {
				t.Errorf("the agent says %q, want a refusal", out)
			}
			data, err := os.ReadFile(status)
			if err != nil {
				t.Fatal(err)
			}
			used := 0
			if _, err := fmt.Sscan(string(data), &used); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d KiB: %.200s", used, out)
			if used > peak {
				t.Errorf("%d KiB at its peak, the budget is %d", used, peak)
			}
		})
	}
}

// notePeak writes the greatest resident size of this process, in KiB, to a file.
// What wait4(2) tells the parent includes the parent's own size before exec.
func notePeak(name string) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	size, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if err := os.WriteFile(name, []byte(size), 0o644); err != nil {
		panic(err)
	}
}
