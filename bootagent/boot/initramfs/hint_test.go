// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// heard is a registry that says what is asked for.
type heard struct {
	oci.Source
	by func(reference string)
}

func (h *heard) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	h.by(reference)
	return h.Source.Manifest(ctx, repo, reference, etag)
}

// TestHint: a loader that boots nothing says so, once in a while, and goes on trying
// whatever becomes of that.
func TestHint(t *testing.T) {
	p := publish(t)
	var said bytes.Buffer
	p.console = screen.Console{W: &said}
	p.machine.limits.pause, p.machine.limits.hint = time.Millisecond, time.Hour
	p.machine.bootstrap.Hints = "https://fleet.example"
	p.machine.id = trust.Identity{MACs: []string{"52:54:00:00:00:01"}, UUIDs: []string{"u"}}
	p.ways.lease = &record.Lease{HostName: "SuperHost"}
	asked := 0
	p.ways.source = &heard{p.ways.source, func(reference string) {
		if reference != fixture.Node {
			return
		}
		if asked++; asked == 6 {
			p.overlay(1, p.layer("image").Overlay.Layer)
		}
	}}
	var got []spec.Hint
	p.chooser.help.tell = func(ctx context.Context, b spec.Bootstrap, way track.Way, body []byte) error {
		if _, bounded := ctx.Deadline(); !bounded || b.Hints != p.machine.bootstrap.Hints || way.Silence == 0 || way.Clock.RTC.IsZero() || way.Credentials == "" {
			t.Errorf("%+v", way)
		}
		h, err := spec.DecodeHint(body)
		if err != nil || asked < 3 {
			t.Errorf("after %d requests: %s: %v", asked, body, err)
		}
		got = append(got, h)
		return errors.New("nobody there")
	}
	if made, err := p.chooser.choose(t.Context()); err != nil || made.overlay.Node != fixture.Node {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Fleet != "metal-a" || got[0].Node != "superhost" || got[0].Match.MACs[0] != "52:54:00:00:00:01" || got[0].Match.UUIDs[0] != "u" || !strings.Contains(got[0].Why, "not found") {
		t.Errorf("%+v", got)
	}
	if text := said.String(); strings.Count(text, "a hint to https://fleet.example: nobody there") != 1 {
		t.Errorf("%s", text)
	}
	p.chooser.help.hint(t.Context(), "x")
	if len(got) != 1 {
		t.Errorf("%d hints within the time of one", len(got))
	}
	p.chooser.help.told = p.chooser.help.told.Add(-2 * time.Hour)
	p.chooser.help.hint(t.Context(), "x")
	if len(got) != 2 || got[1].Why != "x" {
		t.Errorf("a later one: %+v", got)
	}
}

// TestNoHint: where there is no service or no network nobody is told, and a state that
// cannot be read keeps no hint back.
func TestNoHint(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*boot)
		told   int
	}{
		"with all of it":    {func(*boot) {}, 1},
		"without a service": {func(b *boot) { b.machine.bootstrap.Hints = "" }, 0},
		"without a network": {func(b *boot) { b.ways.lease = nil }, 0},
		"without a program": {func(b *boot) { b.chooser.help.tell = nil }, 0},
		"without a state":   {func(b *boot) { b.disk.folder = nil }, 1},
	} {
		p := publish(t)
		told := 0
		p.machine.bootstrap.Hints, p.ways.lease, p.machine.limits.hint = "https://fleet.example", &record.Lease{}, time.Hour
		p.chooser.help.tell = func(context.Context, spec.Bootstrap, track.Way, []byte) error { told++; return nil }
		c.change(p.boot)
		p.chooser.help.hint(t.Context(), "x")
		if told != c.told {
			t.Errorf("%s: told %d times", name, told)
		}
	}
}
