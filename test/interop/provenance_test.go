// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/require"
)

// kernel is of the tiny base.
const kernel = "6.12.9-test"

// tinyBase is a tar with what a build asks of a base, and nothing that runs: the
// packages are there on paper, more than a small attestation could name.
func tinyBase(t *testing.T, dir string) {
	t.Helper()
	require.Tool(t, "busybox", "tar")
	tree := t.TempDir()
	var status strings.Builder
	names := append([]string{"linux-image-test"}, base.Include...)
	for i := range 700 {
		names = append(names, fmt.Sprintf("package-%03d", i))
	}
	for _, name := range names {
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nVersion: 1.0-1\nArchitecture: amd64\n\n", name)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	modules := "usr/lib/modules/" + kernel + "/"
	files := map[string]string{
		"var/lib/dpkg/status": status.String(), "boot/vmlinuz-" + kernel: "kernel", "usr/bin/busybox": string(program),
		"usr/bin/systemctl": "#!/usr/bin/busybox sh\nexit 0\n", "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
		modules + "kernel/overlay.ko": "overlay", modules + "modules.dep": "kernel/overlay.ko:\n",
		modules + "modules.builtin": "", modules + "modules.alias": "", modules + "modules.softdep": "",
	}
	for name, text := range files {
		at := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command("tar", "--create", "--directory", tree, "--file", filepath.Join(dir, "base.tar"), ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, said)
	}
}

const site = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal-a}
registry: %s
layer:
  base: {tar: base.tar}
  kernel: {package: linux-image-test}
nodes:
  - {name: superhost, match: {macs: ["52:54:00:12:34:56"]}}
`

// TestProvenance: cosign verifies what a real build attaches to its layer, and the
// provenance vouches for the SBOM beside it.
func TestProvenance(t *testing.T) {
	require.Root(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "xz", "apt-get")
	p := newPlace(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "caisson")
	if said, err := exec.Command("go", "build", "-o", program, "github.com/caisson-os/caisson/cmd/caisson").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	tinyBase(t, dir)
	agent := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\x3e\x00\x01" + strings.Repeat("\x00", 43) // the head of an amd64 program
	for name, text := range map[string]string{"site.yaml": fmt.Sprintf(site, p.addr+"/metal-a"), "agent": agent} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	previous := "" // index: each version has keys of its own, so the next build names it by digest
	versions(t, func(t *testing.T, c *cosign) {
		newKey(t, c, "release", "")
		attest := newKey(t, c, "attest", "")
		args := []string{"build", filepath.Join(dir, "site.yaml"), "--plain-http", "--fast", "--cache", filepath.Join(dir, "cache"), "--agent", filepath.Join(dir, "agent"),
			"--version", c.version, "--key", c.path("release.key"), "--attest-key", c.path("attest.key"), "-o", "json"}
		if previous != "" {
			args = append(args, "--previous", p.addr+"/metal-a@"+previous)
		}
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			if exit, ok := err.(*exec.ExitError); ok {
				t.Fatalf("caisson build: %v\n%s", err, exit.Stderr)
			}
			t.Fatal(err)
		}
		var built struct {
			Index  string `json:"index"`
			Layers []struct {
				Digest string `json:"digest"`
			} `json:"layers"`
		}
		if err := json.Unmarshal(out, &built); err != nil || len(built.Layers) != 1 {
			t.Fatalf("caisson build said %s, %v", out, err)
		}
		previous = built.Index
		layer := oci.Descriptor{Digest: built.Layers[0].Digest}

		verify := func(key string, kind string) []string {
			return c.verifyArgs("verify-attestation", key, "--allow-http-registry", "--type", kind, p.ref(layer))
		}
		c.must(verify("attest.pub", "slsaprovenance1")...)
		c.refuses("none of the attestations matched", verify("release.pub", "slsaprovenance1")...)
		c.refuses("none of the attestations matched", verify("attest.pub", "spdxjson")...)
		c.must(c.verifyArgs("verify", "release.pub", "--allow-http-registry", p.ref(layer))...)

		sbom, provenance := p.attached(layer, sbom.MediaTypeSPDX), p.attached(layer, oci.TypeBundle)
		if len(sbom) != 1 {
			t.Fatalf("%d SBOMs, want 1", len(sbom))
		}
		vouched, large := false, false
		for _, bundle := range provenance {
			raw, err := sign.VerifyAttestation(bundle, layer.Digest, sign.PredicateProvenance, []sign.Verifier{sign.VerifierOf(attest)})
			if err != nil {
				continue // the release signature
			}
			vouched = strings.Contains(string(raw), strings.TrimPrefix(oci.Digest(sbom[0]), "sha256:"))
			large = len(bundle) > oci.MaxBundle
		}
		if !vouched || !large {
			t.Errorf("of %d bundles, the provenance names the SBOM: %v; is larger than a node's bundles may be: %v", len(provenance), vouched, large)
		}
	})
}

// attached reads the blobs of one type that refer to a layer.
func (p *place) attached(d oci.Descriptor, mediaType string) (all [][]byte) {
	p.t.Helper()
	list, err := p.reg.Referrers(p.t.Context(), "layer", d.Digest)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range list {
		raw, _, err := p.reg.Manifest(p.t.Context(), "layer", r.Digest)
		if err != nil {
			p.t.Fatal(err)
		}
		m, err := oci.ParseManifest(raw)
		if err != nil {
			p.t.Fatal(err)
		}
		if m.Layers[0].MediaType != mediaType {
			continue
		}
		b, err := oci.ReadBlob(p.t.Context(), p.reg.Source(), "layer", m.Layers[0], oci.MaxAttested)
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}
