// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// A change that ended because the disk had no room is not held against its generation: with
// room again the next apply makes it, whatever was written before the room ended.
func TestAChangeWithoutRoomIsMadeWithRoom(t *testing.T) {
	for _, reserve := range []bool{true, false} {
		for _, free := range []int64{0, 48 << 10, 64 << 10} { // before, in the middle of and after what is changed
			t.Run(fmt.Sprintf("reserve %v, %d KiB", reserve, free>>10), func(t *testing.T) {
				r := newRemote(t)
				fill := r.fullDisk()
				r.enrolled()
				r.up()
				for _, name := range []string{"one", "two", "three"} {
					r.file("/etc/"+name, strings.Repeat("x", 9000))
				}
				r.within = time.Minute
				items := items2("20", "2")
				for _, name := range []string{"one", "two", "three"} {
					items.Files = append(items.Files, spec.File{Path: "/etc/" + name, Content: strings.Repeat("y", 9000), Mode: "0644"})
				}
				r.publishItems(2, layerNamed("a"), items)
				if !reserve {
					if err := os.RemoveAll(r.root + paths.State + "/reserve"); err != nil {
						t.Fatal(err)
					}
				}
				fill()
				log := filepath.Join(r.root+paths.State, "log")
				info, err := os.Stat(log)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(log, max(0, info.Size()-free)); err != nil {
					t.Fatal(err)
				}
				first, firstErr := r.syncOnce()
				if err := os.Remove(log); err != nil {
					t.Fatal(err)
				}
				r.anHourLater()
				st, err := r.syncOnce()
				if err != nil || st.Generation != 2 || r.swappiness("") != "20" || r.got() != "2" {
					t.Errorf("%v; %+v, swappiness %s, link %s\nbefore: %v, %+v", err, st, r.swappiness(""), r.got(), firstErr, first)
				}
			})
		}
	}
}

// anHourLater has the time come at which a change that was postponed is tried again.
func (r *remote) anHourLater() {
	r.t.Helper()
	r.must(r.do(func(n *Node) (*spec.Status, error) {
		return nil, n.session.Owner.Commit(record.Change{State: func(s *state.State) {
			if s.Staged != nil && s.Staged.Again > 0 {
				s.Staged.Again = 1
			}
		}})
	}))
}
