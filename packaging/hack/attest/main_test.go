// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/require"
)

// released is a folder with this program and another file, attested, and what is in it.
func released(t *testing.T, key string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close() // only read
	program, err := os.Create(filepath.Join(dir, "caisson_1.2.3_linux_amd64"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(program, self); err != nil {
		t.Fatal(err)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "caisson_1.2.3_amd64.deb"), []byte("a package"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A program of go test says nothing of version control.
	if err := attest(dir, sbom.Release{Version: "v1.2.3", Untagged: true}, "2026-11-22T23:00:00+01:00", key, true); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// A release is described the same each time, each of its files is signed, and who has the
// public key finds that with openssl(1) alone.
func TestAttest(t *testing.T) {
	dir := t.TempDir()
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.WritePair(key, filepath.Join(dir, "release"), new(keys.Passphrase)); err != nil {
		t.Fatal(err)
	}
	one, two := released(t, filepath.Join(dir, "release.key")), released(t, filepath.Join(dir, "release.key"))
	if !maps.EqualFunc(one, two, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("two runs, two results")
	}
	sums := string(one[sumsFile])
	for name, data := range one {
		if name != sumsFile && name != sumsFile+".sig" && !strings.Contains(sums, hexSum(data)+"  "+name+"\n") {
			t.Errorf("%s is not in\n%s", name, sums)
		}
	}
	if got, want := strings.Count(sums, "\n"), len(one)-2; got != want {
		t.Errorf("%d sums of %d files", got, want)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(one[sumsFile+".sig"])))
	digest := sha256.Sum256(one[sumsFile])
	if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) {
		t.Errorf("the signature does not verify: %v", err)
	}
	require.Tool(t, "openssl")
	for name, data := range map[string][]byte{"sig": signature, "sums": one[sumsFile]} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "openssl", "dgst", "-sha256", "-verify", "release.pub", "-signature", "sig", "sums")
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl: %v: %s", err, said)
	}
}

// The documents are what their formats say: modules with a package URL, and an in-toto
// statement over every other file.
func TestDocuments(t *testing.T) {
	files := released(t, "")
	if _, is := files[sumsFile+".sig"]; is {
		t.Error("signed without a key")
	}
	var spdx struct {
		SPDXVersion, DocumentNamespace string
		CreationInfo                   struct{ Created string }
		Packages                       []struct {
			SPDXID, Name string
			ExternalRefs []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SpdxElementID, RelationshipType, RelatedSpdxElement string }
	}
	if err := json.Unmarshal(files["caisson_1.2.3.spdx.json"], &spdx); err != nil {
		t.Fatal(err)
	}
	if spdx.SPDXVersion != "SPDX-2.3" || spdx.CreationInfo.Created != "2026-11-22T22:00:00Z" {
		t.Errorf("%+v", spdx)
	}
	ids, urls := map[string]bool{"SPDXRef-DOCUMENT": true}, ""
	for _, p := range spdx.Packages {
		if ids[p.SPDXID] {
			t.Errorf("two are %s", p.SPDXID)
		}
		ids[p.SPDXID] = true
		for _, ref := range p.ExternalRefs {
			urls += ref.ReferenceLocator + "\n"
		}
	}
	for _, want := range []string{"pkg:golang/stdlib@1.", "pkg:golang/golang.org/x/crypto@v"} {
		if !strings.Contains(urls, want) {
			t.Errorf("no %s in\n%s", want, urls)
		}
	}
	for _, r := range spdx.Relationships {
		if !ids[r.SpdxElementID] || !ids[r.RelatedSpdxElement] {
			t.Errorf("%+v leads nowhere", r)
		}
	}
	var statement struct {
		Type      string `json:"_type"`
		Subject   []struct{ Name string }
		Predicate struct {
			BuildDefinition struct {
				InternalParameters   map[string]string
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
		}
	}
	if err := json.Unmarshal(files["caisson_1.2.3.provenance.json"], &statement); err != nil {
		t.Fatal(err)
	}
	if statement.Type != "https://in-toto.io/Statement/v1" || len(statement.Subject) != 3 {
		t.Errorf("%+v", statement)
	}
	if p := statement.Predicate.BuildDefinition.InternalParameters; p["untagged"] != "true" || p["uncommittedChanges"] != "unknown" {
		t.Errorf("the statement hides what it is made of: %v", p)
	}
	for _, d := range statement.Predicate.BuildDefinition.ResolvedDependencies {
		if sum := d.Digest["dirHash"]; !strings.Contains(d.URI, "stdlib") && len(sum) != 64 {
			t.Errorf("%s has the hash %q", d.URI, sum)
		}
	}
}

func TestNothingToAttest(t *testing.T) {
	if err := attest(t.TempDir(), sbom.Release{Version: "v1.2.3"}, "2026-11-22T22:00:00Z", "", false); err == nil || !strings.Contains(err.Error(), "has no program") {
		t.Error(err)
	}
}

// What git did not find clean when the linker asked is refused, as is what git was not
// asked of: packaging/hack/release may have looked at another moment.
func TestOfACommit(t *testing.T) {
	for _, test := range []struct {
		modified, want string
		dirty          bool
	}{
		{"", "vcs.modified is \"\"", false},
		{"true", "caisson_1.2.3_linux_amd64 is not made of a commit alone: its vcs.modified is \"true\"", false},
		{"false", "", false},
		{"true", "", true},
	} {
		p := sbom.Program{File: "caisson_1.2.3_linux_amd64", Info: new(debug.BuildInfo)}
		if test.modified != "" {
			p.Info.Settings = []debug.BuildSetting{{Key: "vcs.modified", Value: test.modified}}
		}
		err := ofCommit([]sbom.Program{p}, test.dirty)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
