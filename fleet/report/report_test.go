// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

func TestJudge(t *testing.T) {
	now := time.Unix(1790000000, 0)
	pinned := Known{Key: "a", Grade: spec.KeyPinned, Since: now.Add(-time.Hour), Seq: 7, Boot: "1"}
	boot := Known{Key: "a", Grade: spec.KeyBoot, Since: now.Add(-time.Hour), Seq: 7, Boot: "1"}
	fresh := boot
	fresh.Since = now.Add(-9 * time.Minute)
	astray := boot
	astray.Since = now.AddDate(60, 0, 0)
	r := func(key, boot string, seq uint64) *spec.Report {
		return &spec.Report{Node: "n", Key: key, Grade: spec.KeyPinned, BootID: boot, Seq: seq}
	}
	for what, c := range map[string]struct {
		known Known
		owner string
		r     *spec.Report
		want  Verdict
	}{
		"the first":                    {Known{}, "", r("a", "1", 1), Counts},
		"the next":                     {pinned, "n", r("a", "2", 8), Counts},
		"played back":                  {pinned, "n", r("a", "1", 7), Refused},
		"an older one":                 {pinned, "n", r("a", "0", 3), Refused},
		"another key":                  {pinned, "", r("b", "2", 8), Offered},
		"another node's key":           {pinned, "m", r("b", "2", 8), Refused},
		"another node's, at first":     {Known{}, "m", r("b", "2", 8), Refused},
		"a key that was given up":      {boot, "n", r("b", "2", 8), Refused},
		"of the next boot":             {boot, "", r("b", "2", 1), Counts},
		"another one in one boot":      {boot, "", r("b", "1", 8), Offered},
		"after a clock that was wrong": {astray, "", r("b", "2", 1), Counts},
		"of the next boot, too early":  {fresh, "", r("b", "2", 1), Offered},
	} {
		got, why := Judge(c.known, c.owner, c.r, now)
		if got != c.want || (why == "") != (got == Counts) {
			t.Errorf("%s: %d %q, want %d", what, got, why, c.want)
		}
	}
}

// TestTheKeyIsTheOneNamed: whoever can make a second key under which a signature
// verifies does not thereby report as that key.
func TestTheKeyIsTheOneNamed(t *testing.T) {
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	sealed := func(id string) []byte {
		one := spec.NewReport(&spec.Status{Fleet: "f", Node: "n", BootID: "b"})
		one.Key, one.Grade, one.Seq = id, spec.KeyBoot, 1
		data, err := one.Encode()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := sign.SignReport(key, data)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	if r, err := Open(sealed(sign.VerifierOf(key).ID()), time.Now()); err != nil || r.Node != "n" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := Open(sealed("another"), time.Now()); err == nil {
		t.Error("it was taken under another key's name")
	}
}
