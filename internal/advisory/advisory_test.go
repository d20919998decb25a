// SPDX-License-Identifier: Apache-2.0

package advisory

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	version "github.com/knqyf263/go-deb-version"

	"github.com/caisson-os/caisson/test/require"
)

// file has entries in the form of the tracker's.
const file = `{
 "openssl": {
  "CVE-2024-0001": {"description": "a fault", "scope": "remote", "debianbug": 1, "releases": {
   "bookworm": {"status": "resolved", "repositories": {"bookworm": "3.0.15-1~deb12u1"}, "fixed_version": "3.0.14-1~deb12u1", "urgency": "high"},
   "sid": {"status": "resolved", "repositories": {"sid": "3.3.2-1"}, "fixed_version": "3.2.1-1", "urgency": "not yet assigned"}}},
  "CVE-2024-0002": {"releases": {"bookworm": {"status": "open", "repositories": {}, "urgency": "unimportant"}}},
  "CVE-2024-0003": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "0", "urgency": "unimportant"}}},
  "CVE-2024-0004": {"releases": {"bookworm": {"status": "undetermined", "urgency": "not yet assigned", "nodsa": "", "nodsa_reason": ""}}},
  "CVE-2024-0005": {"releases": {"sid": {"status": "open", "urgency": "high"}}}},
 "openssh": {"CVE-2024-6387": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "1:9.2p1-2+deb12u3", "urgency": "not yet assigned"}}}},
 "glibc": {"CVE-2023-4911": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "2.36-9+deb12u3", "urgency": "medium"}}}},
 "linux": {"CVE-2024-9": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "6.1.128-1", "urgency": "not yet assigned"}}}},
 "snapshot": {"CVE-2024-10": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "1.20000000000000000000", "urgency": "low"}}}},
 "jq": {"TEMP-0000000-ABC": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "1.6-3", "urgency": "low"}}}}
}`

func tracker(t *testing.T) *Tracker {
	t.Helper()
	got, err := Read(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func ids(list []Advisory) (all []string) {
	for _, a := range list {
		all = append(all, a.ID)
	}
	return all
}

func TestCompare(t *testing.T) {
	tr := tracker(t)
	if !tr.Knows("bookworm") || tr.Knows("trixie") {
		t.Error("which releases the file speaks of")
	}
	for _, c := range []struct {
		what                 string
		from, to             Package
		closed, opened, open []string
	}{
		{what: "a security update", from: Package{"libssl3", "3.0.11-1~deb12u2", "openssl", ""}, to: Package{"libssl3", "3.0.15-1~deb12u1", "openssl", ""},
			closed: []string{"CVE-2024-0001"}, open: []string{"CVE-2024-0002"}},
		{what: "a downgrade", from: Package{"libssl3", "3.0.15-1~deb12u1", "openssl", ""}, to: Package{"libssl3", "3.0.11-1~deb12u2", "openssl", ""},
			opened: []string{"CVE-2024-0001"}, open: []string{"CVE-2024-0001", "CVE-2024-0002"}},
		{what: "an epoch that the version before lacks", from: Package{"openssh-server", "9.9p1-1", "openssh", ""}, to: Package{"openssh-server", "1:9.2p1-2+deb12u3", "openssh", ""}, closed: []string{"CVE-2024-6387"}},
		{what: "deb12u10 is after deb12u3", from: Package{"libc6", "2.36-9+deb12u10", "glibc", ""}, to: Package{"libc6", "2.36-9+deb12u11", "glibc", ""}},
		{what: "a rebuild is as its source", from: Package{"libc6", "2.36-9+deb12u2+b1", "glibc", "2.36-9+deb12u2"}, to: Package{"libc6", "2.36-9+deb12u3+b1", "glibc", ""}, closed: []string{"CVE-2023-4911"}},
		{what: "the source's version counts, not the package's", from: Package{"libc-dev-bin", "9:1", "glibc", "2.36-9"}, to: Package{"libc-dev-bin", "0", "glibc", "2.36-9+deb12u3"}, closed: []string{"CVE-2023-4911"}},
		{what: "a signed kernel", from: Package{"linux-image-6.1.0-28-amd64", "6.1.119-1", "linux-signed-amd64", "6.1.119+1"}, to: Package{"linux-image-6.1.0-31-amd64", "6.1.128-1", "linux-signed-amd64", "6.1.128+1"}, closed: []string{"CVE-2024-9"}},
		{what: "a kernel whose source is not known", from: Package{"linux-image-6.1.0-28-amd64", "6.1.119-1", "", ""}, to: Package{}, closed: []string{"CVE-2024-9"}},
		{what: "a package by its own name", from: Package{"jq", "1.6-2.1", "", ""}, to: Package{"jq", "1.6-3+b1", "", ""}, closed: []string{"TEMP-0000000-ABC"}},
		{what: "a version that is none", from: Package{"jq", "x", "jq", ""}, to: Package{"jq", "1.7", "jq", ""}, closed: []string{"TEMP-0000000-ABC"}},
		{what: "a number of twenty digits and the one that it is fixed in", from: Package{"snapshot", "1.10000000000000000000", "snapshot", ""}, to: Package{"snapshot", "1.20000000000000000000", "snapshot", ""}, closed: []string{"CVE-2024-10"}},
		{what: "a number of twenty digits in one of both", from: Package{"jq", "1.7", "jq", ""}, to: Package{"jq", "1.10000000000000000000", "jq", ""}, opened: []string{"TEMP-0000000-ABC"}, open: []string{"TEMP-0000000-ABC"}},
		{what: "a number of twenty digits, and no version has the fault", from: Package{}, to: Package{"openssl", "1.10000000000000000000", "openssl", ""}, opened: []string{"CVE-2024-0001", "CVE-2024-0002"}, open: []string{"CVE-2024-0001", "CVE-2024-0002"}},
		{what: "a package that comes", from: Package{}, to: Package{"openssl", "3.0.15-1~deb12u1", "openssl", ""}, opened: []string{"CVE-2024-0002"}, open: []string{"CVE-2024-0002"}},
	} {
		got := tr.Compare("bookworm", []Package{c.from}, []Package{c.to})
		if !slices.Equal(ids(got.Closed), c.closed) || !slices.Equal(ids(got.Opened), c.opened) || !slices.Equal(ids(got.Open), c.open) {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// What a change means is said in a line a source, and nothing in a line, too.
func TestWrite(t *testing.T) {
	tr := tracker(t)
	old := []Package{{"libssl3", "3.0.11-1", "openssl", ""}, {"openssl", "3.0.11-1", "openssl", ""}, {"jq", "1.6-2.1", "", ""}}
	text := func(from, to []Package) string {
		var b strings.Builder
		tr.Compare("bookworm", from, to).Write(&b)
		return b.String()
	}
	const first = "advisories: openssl 3.0.11-1 → 3.0.15-1 closes CVE-2024-0001 (high)\nadvisories: jq 1.6-2.1 → none closes TEMP-0000000-ABC (low)\n" +
		"advisories: 1 open afterwards, of which 0 high\nadvisories: judged by their own names, as their sources are not known: jq\n"
	if got := text(old, []Package{{"libssl3", "3.0.15-1", "openssl", ""}}); got != first {
		t.Errorf("%s", got)
	}
	if got := text(old[:2], old[:2]); !strings.HasPrefix(got, "advisories: nothing security relevant\nadvisories: 2 open afterwards, of which 1 high\n") {
		t.Errorf("%s", got)
	}
}

// A file in another form, cut or endless is an error: it would say that there is nothing.
func TestReadRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"nothing":            "",
		"no object":          "[]",
		"no entry":           "{}",
		"cut":                file[:len(file)/2],
		"more":               file + "{}",
		"another form":       `{"openssl": {"CVE-1": {"status": "open"}}}`,
		"a status":           `{"openssl": {"CVE-1": {"releases": {"sid": {"status": "maybe"}}}}}`,
		"a version":          `{"openssl": {"CVE-1": {"releases": {"sid": {"status": "resolved", "fixed_version": "a b"}}}}}`,
		"no version":         `{"openssl": {"CVE-1": {"releases": {"sid": {"status": "resolved"}}}}}`,
		"a list for a table": `{"openssl": []}`,
	} {
		if _, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	if _, err := read(strings.NewReader(file), 100); err == nil || !strings.Contains(err.Error(), "more than 100 bytes") {
		t.Errorf("a long one: %v", err)
	}
	if _, err := Open(t.TempDir() + "/none"); err == nil {
		t.Error("no file is no error")
	}
}

// Versions are in dpkg's own order.
func TestOrderIsDpkgs(t *testing.T) {
	require.Tool(t, "dpkg")
	list := []string{"0", "1", "1.0", "1.0-1", "1.0-1+b1", "1.0-1+deb12u1", "1.0-1+deb12u10", "1.0-1~deb12u2", "1.0~rc1-1", "1:0.1", "2:0", "1.0a", "1.0+dfsg-2", "1.0-1.1", "10", "9", "20240101.1"}
	for _, a := range list {
		for _, b := range list {
			x, err := version.NewVersion(a)
			if err != nil {
				t.Fatal(err)
			}
			y, _ := version.NewVersion(b)
			if want := exec.Command("dpkg", "--compare-versions", a, "lt", b).Run() == nil; x.LessThan(y) != want {
				t.Errorf("%s < %s: dpkg says %v", a, b, want)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file, "3.0.11-1")
	f.Add(`{"a": {"CVE-1": {"releases": {"bookworm": {"status": "resolved", "fixed_version": "1:2~3-4+b5", "urgency": "low"}}}}}`, "1:1")
	f.Fuzz(func(t *testing.T, text, version string) {
		tr, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for source := range tr.sources {
			p := []Package{{"x", version, source, ""}}
			if c := tr.Compare("bookworm", p, p); len(c.Closed)+len(c.Opened) > 0 {
				t.Errorf("%q: no change closes or opens %+v", source, c)
			}
			c := tr.Compare("bookworm", nil, p)
			if len(c.Opened) != len(c.Open) {
				t.Errorf("%+v", c)
			}
		}
	})
}
