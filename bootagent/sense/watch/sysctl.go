// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/sense/watch/bpf"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// rival is the last write of a parameter.
type rival struct {
	value, who string
	at         time.Time
}

// fresh is how long a write counts as what a drift comes from: a drift is found within
// a minute, what was written before that is another matter.
const fresh = 65 * time.Second

// maxRefused bounds what is kept of refused writes between two looks.
const maxRefused = 16

// writes are the attempts to write parameters.
type writes struct {
	observer *bpf.Observer
	watch    *Watch
	cgroup   *os.File
	keys     string // of what it was begun for
}

func (s *writes) fd() int { return s.observer.FD() }

func (s *writes) close() {
	fault.Say(s.watch.say, s.observer.Close())
	s.cgroup.Close() // only read
}

// drain notes who has written; the mutex is held.
func (s *writes) drain() (kinds []string, lost bool) {
	w := s.watch
	for n := 0; ; n++ {
		e, more := s.observer.Next()
		if !more {
			return kinds, lost
		}
		lost = n >= most // there may have been more than there is room for
		if strings.HasPrefix(e.Key, "net/") && elsewhere(e.PID) {
			continue // each network namespace has its own
		}
		who := s.who(e)
		if e.Protected {
			if !ownProgram(e) { // a verb is exempt while it is at work
				w.news.refuse(spec.RefusedWrite{Key: e.Key, Value: strings.TrimSpace(e.Value), Rival: who, Count: 1,
					At: time.Now().UTC().Truncate(time.Second)})
			}
			continue
		}
		r := rival{strings.TrimSpace(e.Value), who, time.Now()}
		if last := w.rivals[e.Key]; strings.HasPrefix(e.Key, "net/") && last.value == r.value && last.who != who && time.Since(last.at) < fresh {
			r.who = "" // one of the two may be of another namespace, and gone
		}
		w.rivals[e.Key] = r
		kinds = []string{"sysctl"}
	}
}

// refuse keeps the events of writes that the kernel has refused.
func (n *news) refuse(r spec.RefusedWrite) {
	i := slices.IndexFunc(n.refused, func(o spec.RefusedWrite) bool { return o.Key == r.Key && o.Rival == r.Rival })
	switch {
	case i >= 0:
		r.Count += n.refused[i].Count
		n.refused[i] = r
	case len(n.refused) < maxRefused:
		n.refused = append(n.refused, r)
	}
}

// ownProgram reports whether a process runs, or has run, the program of this one.
func ownProgram(e bpf.Event) bool {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil || !strings.HasPrefix(filepath.Base(own), e.Comm) {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", e.PID))
	return err != nil || other == own // one that has ended left nothing but its name
}

// elsewhere reports whether a process is known to be in another network namespace.
func elsewhere(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return false
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err == nil && other != own
}

// who names the process of a write, and the unit that it is of.
func (s *writes) who(e bpf.Event) string {
	text := fmt.Sprintf("%s (pid %d)", e.Comm, e.PID)
	if at, err := bpf.Path(s.cgroup, e.Cgroup); err == nil && at != "" {
		text += " of " + path.Base(at)
	}
	return text
}

// Rival says who made a drift so, "" where that is not known: the last writer of a
// parameter is reported only where the file holds what was written.
func (w *Watch) Rival(d spec.Drift) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	r, ok := w.rivals[d.Key]
	if d.Item != "sysctl" || !ok || time.Since(r.at) > fresh || !slices.Equal(strings.Fields(r.value), strings.Fields(d.From)) {
		return ""
	}
	return r.who
}

// followSysctl watches the parameters of an overlay, those of which the kernel refuses
// writes as such; the mutex is held.
func (w *Watch) followSysctl(o *spec.Overlay, protected []string) {
	keys := plain.Each(o.Items.Sysctl, func(s spec.Sysctl) string { return s.Key })
	wanted := strings.Join(keys, " ") + "; " + strings.Join(protected, " ")
	if now, ok := w.sources[item.BPF].(*writes); ok && now.keys == wanted {
		return
	}
	w.drop(item.BPF)
	clear(w.rivals)
	if len(keys) == 0 {
		return
	}
	w.open(item.BPF, func(*Watch) (source, error) {
		cgroup, err := bpf.Root()
		if err != nil {
			return nil, err
		}
		observer, err := bpf.Observe(cgroup, keys, func(key string) bool { return slices.Contains(protected, key) })
		if err != nil {
			cgroup.Close() // only read
			return nil, err
		}
		return &writes{observer, w, cgroup, wanted}, nil
	})
}
