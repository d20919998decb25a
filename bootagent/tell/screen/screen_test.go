// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Each way to fail has its words: what, why, what to do, what comes next.
func TestLines(t *testing.T) {
	f := Failure{Registry: "10.0.2.2:5000/metal-a", Machine: trust.Identity{MACs: []string{"52:54:00:00:00:01"}, UUIDs: []string{"u-1"}}, Tries: 3, Since: 65 * time.Second,
		Next: 16 * time.Second, Now: time.Date(2026, 11, 21, 23, 59, 50, 0, time.UTC)}
	for name, c := range map[string]struct {
		change func(*Failure)
		want   []string
	}{
		"no address": {func(f *Failure) { f.Err = errors.New("network: no lease") },
			[]string{"it has no address", "registry 10.0.2.2:5000/metal-a, as MAC 52:54:00:00:00:01, UUID u-1; try 3, 1m5s since the first", "failed  network: no lease", "cable", "no state disk", "in 16s, at 00:00:06 UTC"}},
		"dead registry": {func(f *Failure) {
			f.Err, f.Address, f.Disk = errors.New("connection refused"), "10.0.2.15/24", "/dev/vda1"
		},
			[]string{"the registry does not answer", "from 10.0.2.15/24", "connection refused", "no generation on state disk /dev/vda1 has proved itself yet", "its certificate"}},
		"not published": {func(f *Failure) { f.Err, f.Address = fmt.Errorf("no overlay: %w", oci.ErrNotFound), "10.0.2.15/24" },
			[]string{"nothing is published for it", "caisson publish"}},
		"refused": {func(f *Failure) {
			f.Err = refusal.New(refusal.WrongNode, "it is another's")
			f.NoWay = errors.New("the disk rotted")
		},
			[]string{"is refused (wrong-node)", (&refusal.Refusal{Code: refusal.WrongNode}).Hint(), "the last good generation cannot run: the disk rotted"}},
		"too little memory": {func(f *Failure) {
			f.Err, f.Address = &stage.TooLittle{Images: 400e6, Has: 500 << 20, Needs: 600<<20 + 1}, "10.0.2.15/24"
		},
			[]string{"it has too little memory", "400.0 MB of images", "needs 601 MiB, and it has 500", "give it 101 MiB more", "state disk"}},
		"with a code": {func(f *Failure) { f.Err, f.Rescue = errors.New("network: no lease"), "code k7m2q-9xfab" }, []string{"  rescue  code k7m2q-9xfab\n"}},
		"it ends": {func(f *Failure) {
			f.Tries, f.Next, f.Over, f.Err = 0, 0, 30*time.Second, errors.New("bootstrap: no site.cpio")
		},
			[]string{"its loader ends", "bootstrap: no site.cpio", "the machine starts over in 30s, at 00:00:20 UTC"}},
	} {
		one := f
		c.change(&one)
		text := strings.Join(one.Lines(), "\n")
		for _, want := range append(c.want, "THIS NODE DOES NOT COME UP", "  do ") {
			if want == "" || !strings.Contains(text, want) {
				t.Errorf("%s: %q is missing in\n%s", name, want, text)
			}
		}
		if n := strings.Count(text, "\n"); n > 9 {
			t.Errorf("%s: %d lines", name, n)
		}
	}
}

// Whatever a registry may say: what a person can do stands beside it.
func TestEveryRefusalHasARemedy(t *testing.T) {
	for _, code := range refusal.Codes() {
		what, do := Failure{Tries: 1, Err: refusal.New(code, "x")}.words()
		if !strings.Contains(what, string(code)) || do == "" {
			t.Errorf("%s: %q, %q", code, what, do)
		}
	}
}
