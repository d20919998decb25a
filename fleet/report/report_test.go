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
	pinned := Reporter{Key: "a", Grade: spec.KeyPinned, Since: now.Add(-2 * time.Hour), Heard: now.Add(-time.Hour), Silent: true, Seq: 7, Boot: "1"}
	gone := pinned // a boot that has ended, perhaps
	gone.Grade = spec.KeyBoot
	alive := gone
	alive.Silent, alive.Heard = false, now.Add(-time.Minute)
	fresh := gone
	fresh.Since = now.Add(-9 * time.Minute)
	astray := gone
	astray.Since = now.AddDate(60, 0, 0)
	short := alive // it came half an hour ago
	short.Since = now.Add(-31 * time.Minute)
	r := func(key, boot string, seq uint64) *spec.Report {
		return &spec.Report{Node: "n", Key: key, Grade: spec.KeyPinned, BootID: boot, Seq: seq}
	}
	earlier := Key{Node: "n", Seq: 7, Counted: time.Hour}
	for what, c := range map[string]struct {
		known Reporter
		key   Key
		r     *spec.Report
		want  Verdict
		grade spec.KeyGrade
	}{
		"the first":                        {Reporter{}, Key{}, r("a", "1", 1), Counts, spec.KeyPinned},
		"the first beside the one named":   {Reporter{}, Key{Awaited: true}, r("a", "1", 1), Offered, ""},
		"another one was named":            {gone, Key{Awaited: true}, r("b", "2", 1), Counts, spec.KeyBoot},
		"the next":                         {pinned, Key{Node: "n"}, r("a", "2", 8), Counts, spec.KeyPinned},
		"played back":                      {pinned, Key{Node: "n"}, r("a", "1", 7), Refused, ""},
		"an older one":                     {pinned, Key{Node: "n"}, r("a", "0", 3), Refused, ""},
		"another key":                      {pinned, Key{}, r("b", "2", 8), Offered, ""},
		"another node's key":               {pinned, Key{Node: "m"}, r("b", "2", 8), Refused, ""},
		"another node's, at first":         {Reporter{}, Key{Node: "m"}, r("b", "2", 8), Refused, ""},
		"of the next boot":                 {gone, Key{}, r("b", "2", 1), Counts, spec.KeyBoot},
		"beside one that reports":          {alive, Key{}, r("b", "2", 1), Offered, ""},
		"another one in one boot":          {gone, Key{}, r("b", "1", 8), Offered, ""},
		"after a clock that was wrong":     {astray, Key{}, r("b", "2", 1), Counts, spec.KeyBoot},
		"of the next boot, too early":      {fresh, Key{}, r("b", "2", 1), Offered, ""},
		"one of two, from elsewhere":       {gone, Key{Rivalled: true}, r("b", "2", 1), Offered, ""},
		"an earlier one, played back":      {short, earlier, r("b", "0", 7), Refused, ""},
		"an earlier one that counted more": {short, earlier, r("b", "0", 8), Counts, spec.KeyBoot},
		"an earlier one that counted less": {alive, Key{Node: "n", Counted: time.Hour}, r("b", "0", 8), Offered, ""},
		"it, in silence":                   {gone, Key{Node: "n", Counted: time.Minute}, r("b", "0", 8), Counts, spec.KeyBoot},
		"an earlier one of a pinned node":  {pinned, earlier, r("b", "0", 8), Offered, ""},
		"one that was given up":            {gone, Key{Node: "n", Counted: 9 * time.Hour, GivenUp: true}, r("b", "0", 8), Offered, ""},
		"one that was accepted":            {pinned, Key{Node: "n", GivenUp: true, Accepted: true}, r("b", "1", 8), Counts, spec.KeyPinned},
		"one of long ago, accepted":        {pinned, Key{Node: "n", Seq: spec.MaxSeq, Accepted: true}, r("b", "1", 8), Counts, spec.KeyPinned},
		"one of long ago":                  {gone, Key{Node: "n", Seq: spec.MaxSeq}, r("b", "1", 8), Refused, ""},
		"one that was accepted for two":    {pinned, Key{Node: "m", Accepted: true}, r("b", "1", 8), Refused, ""},
	} {
		got, why := Judge(c.known, c.key, c.r, now)
		if got != c.want || (why == "") != (got == Counts) {
			t.Errorf("%s: %d %q, want %d", what, got, why, c.want)
		}
		if grade := Grade(c.known, c.key, c.r); got == Counts && grade != c.grade {
			t.Errorf("%s: its grade is %s, want %s", what, grade, c.grade)
		}
	}
}

// TestTheKeyIsTheOneNamed: who can make a second key under which a signature
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
	if r, err := Open("", sealed(sign.VerifierOf(key).ID()), time.Now()); err != nil || r.Node != "n" {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := Open("", sealed("another"), time.Now()); err == nil {
		t.Error("it was taken under another key's name")
	}
}
