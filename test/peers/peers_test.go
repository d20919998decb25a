// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/peers/chart"
	"github.com/caisson-os/caisson/test/require"
)

// TestShown: a row has the median and both ends, and says who cannot and what is not as wanted.
func TestShown(t *testing.T) {
	those := []peer{{name: "caisson"}, {name: "other"}}
	lives := []life{
		{Peer: "caisson", Apply: step{Seconds: 3}, Back: &step{Seconds: 1, Missing: 9}}, {Peer: "other", Apply: step{Seconds: 8, Missing: 2}},
		{Peer: "caisson", Apply: step{Seconds: 1}, Back: &step{Seconds: 1, Missing: 9}}, {Peer: "other", Apply: step{Seconds: 9, Missing: 2}},
		{Peer: "other", Apply: step{Seconds: 99, Missing: 7}, Killed: &kill{Torn: 3}},
		{Peer: "caisson", Apply: step{Seconds: 2}, Back: &step{Seconds: 1, Missing: 9}}, {Peer: "other", Apply: step{Seconds: 7, Missing: 2}},
	}
	var printed bytes.Buffer
	if err := chart.Table(&printed, shown(those, lives)); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(printed.String()), " ")
	for _, want := range []string{"caisson 1.00 2.00 3.00", "other 7.00 8.00 9.00", "other cannot",
		"other 3.00 3.00 3.00 1 of 5 kills 7 not as wanted after the next run, after 1 of 1 kills"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in\n%s", want, &printed)
		}
	}
	drawn := chart.Draw(shown(those, lives))
	for _, want := range []string{"8.00 s, 2 not as wanted", ">cannot<", "2.00 s<"} {
		if !strings.Contains(string(drawn), want) {
			t.Errorf("%q is not drawn", want)
		}
	}
	if strings.Contains(string(drawn), "%!") {
		t.Errorf("a number is not drawn:\n%s", drawn)
	}
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestAsked: what names no side, a peer of another one, or no number of runs, is refused before anything
// is made, with what there is.
func TestAsked(t *testing.T) {
	require.Root(t)
	for _, c := range []struct {
		runs  int
		side  string
		names []string
		want  string
	}{
		{0, "", nil, ""}, {2, "polls", []string{"docker-registry"}, ""}, {0, "nodes", []string{"caisson", "cfengine"}, ""},
		{0, "formats", []string{"erofs-lz4hc"}, ""}, {0, "images", []string{"buildah"}, ""}, {0, "updates", []string{"ostree"}, ""},
		{-1, "polls", nil, "-runs -1"}, {0, "poll", nil, "there are nodes, images"}, {0, "", []string{"caisson"}, "-side"},
		{0, "polls", []string{"caisson", "cfengine"}, `no peer of side polls is called "cfengine": there are caisson, docker-registry`},
	} {
		err := asked(c.runs, c.side, c.names)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestLongPeers has the fast ones live once: what they are asked for is in effect, and only
// caisson takes it back. A kill leaves no half file, and what was begun is ended.
func TestLongPeers(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "unshare", "tar")
	t.Chdir("../..")
	those, err := named([]string{"caisson", "cfengine", "systemd"})
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	if err := build(work); err != nil {
		t.Fatal(err)
	}
	lives, err := take(those, 1, work)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lives {
		if k := l.Killed; k != nil {
			if l.Peer == "caisson" && (k.Torn > 0 || l.Again.Missing > 0) {
				t.Errorf("killed: %+v, then %+v", *k, l.Again)
			}
			continue
		}
		if l.Apply.Missing != 0 || l.Again.Missing != 0 {
			t.Errorf("%+v", l)
		}
		if ours := l.Peer == "caisson"; ours != (l.Back != nil) || ours && (l.Mend.Missing != 0 || l.Back.Missing != all().count()) {
			t.Errorf("%+v", l)
		}
	}
}
