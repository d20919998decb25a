// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/test/itemtest"
)

func newItem(want []spec.Exec, dir string, j item.Journal) *Item {
	return New(want, Host{Dir: dir, Runner: new(process.Group), Scopes: itemtest.Scopes, Journal: j, Signed: signs(dir, want), Log: func(string, ...any) {}})
}

// overlays are the scripts of the signed overlays by directory of a test.
var overlays sync.Map

// signs adds scripts to the signed overlays of a directory.
func signs(dir string, want []spec.Exec) func() []Signed {
	before, _ := overlays.Load(dir)
	known, _ := before.([]Signed)
	for _, w := range want {
		known = append(slices.Clip(known), Signed{Script: w})
	}
	overlays.Store(dir, known)
	return func() []Signed {
		all, _ := overlays.Load(dir)
		return all.([]Signed)
	}
}

// What the journal says is not run: only a signed overlay's script is.
func TestARevertThatNobodySignedIsNotRun(t *testing.T) {
	dir, effect := t.TempDir(), t.TempDir()
	w := spec.Exec{Name: "a", Data: "true\n", Revert: "touch " + effect + "/signed\n"}
	j := itemtest.Journal(t, t.TempDir())
	if err := pass(t, newItem([]spec.Exec{w}, dir, j)); err != nil {
		t.Fatal(err)
	}
	for _, e := range j.Entries(Name) {
		e.Applied = item.Raw(undo{identity(w, nil), spec.Exec{Name: "a", Data: "touch " + effect + "/evil\n"}})
		if err := j.Record(e); err != nil {
			t.Fatal(err)
		}
	}
	nobody := New(nil, Host{Dir: dir, Runner: new(process.Group), Scopes: itemtest.Scopes, Journal: j, Signed: func() []Signed { return nil }, Log: func(string, ...any) {}})
	if err := nobody.Restore(t.Context(), j.Entries(Name)); err == nil || !strings.Contains(err.Error(), "no signed overlay") || len(j.Entries(Name)) != 1 {
		t.Errorf("nobody signed it: %v, %d entries", err, len(j.Entries(Name)))
	}
	if err := newItem(nil, dir, j).Restore(t.Context(), j.Entries(Name)); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(effect)
	if err != nil || len(files) != 1 || files[0].Name() != "signed" {
		t.Errorf("it ran %v, %v", files, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

func checked(t *testing.T, it *Item) []spec.Drift {
	t.Helper()
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return drift
}

// pass is one look and one apply, as the agent makes them.
func pass(t *testing.T, it *Item) error {
	t.Helper()
	return it.Apply(t.Context(), checked(t, it))
}

// failures is a pass and what it says of scripts that failed.
func failures(t *testing.T, it *Item) string {
	t.Helper()
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, d := range checked(t, it) {
		if d.Action == spec.ActionFailed {
			said = append(said, d.Key+": "+d.Reason)
		}
	}
	return strings.Join(said, "\n")
}

// No user is at home where it acts: the state directory is root's alone.
// Nothing tells of its changes: a script is looked at when it is due.
func TestConformance(t *testing.T) {
	for _, revert := range []bool{true, false} {
		t.Run(fmt.Sprintf("revert %v", revert), func(t *testing.T) {
			itemtest.Run(t, func(t *testing.T) itemtest.World {
				effect, dir := t.TempDir(), t.TempDir()
				want := []spec.Exec{
					{Name: "10.sh", Data: "#!/bin/sh\necho $A $1 >" + effect + "/ten\n", Args: []string{"arg"}, Env: map[string]string{"A": "b c"}, Rerun: "never"},
					{Name: "9.sh", Data: "cat " + effect + "/ten >" + effect + "/nine\n"},
				}
				if revert {
					want[0].Revert = "rm -f " + effect + "/ten\n"
					want[1].Revert = "#!/bin/sh -e\nrm -f " + effect + "/nine\n"
				}
				return itemtest.World{
					Wanted:   func(j item.Journal) item.Item { return newItem(want, dir, j) },
					Empty:    func(j item.Journal) item.Item { return newItem(nil, dir, j) },
					Snapshot: func() string { return read(t, effect+"/ten") + "|" + read(t, effect+"/nine") },
					OneWay:   !revert,
				}
			})
		})
	}
}

func TestHowAScriptRuns(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()+"/out"
	w := spec.Exec{Name: "show+it.sh", Args: []string{"a b", "", "'"}, Env: map[string]string{"X": "1 2", "OUT": out},
		Data: `#!/bin/sh -u
{ printf '%s\n' "$0" "$#" "$1" "$2" "$3" "$X" "${NOTIFY_SOCKET-unset}"; pwd; } >$OUT
echo to the log; echo and errors >&2
`}
	t.Setenv("NOTIFY_SOCKET", "/run/agent")
	it := newItem([]spec.Exec{w}, dir, itemtest.Journal(t, t.TempDir()))
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	folder := it.script(w).dir
	if got, want := read(t, out), "./show+it.sh\n3\na b\n\n'\n1 2\nunset\n"+folder+"\n"; got != want {
		t.Errorf("the script saw %q, want %q", got, want)
	}
	if got := read(t, folder+"/log"); got != "to the log\nand errors\n" {
		t.Errorf("log %q", got)
	}
	if drift := checked(t, it); len(drift) > 0 {
		t.Errorf("drift %+v", drift)
	}
	// Scripts, logs and environments may hold secrets.
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Divingbell's hash joined arguments with blanks and left the name out.
func TestIdentity(t *testing.T) {
	base := spec.Exec{Name: "a", Data: "x", Args: []string{"1", "2"}, Env: map[string]string{"A": "b"}}
	seen := map[string]string{identity(base, nil): "base"}
	for name, change := range map[string]func(*spec.Exec){
		"name":             func(w *spec.Exec) { w.Name = "b" },
		"text":             func(w *spec.Exec) { w.Data = "y" },
		"joined arguments": func(w *spec.Exec) { w.Args = []string{"1 2"} },
		"moved boundary":   func(w *spec.Exec) { w.Name, w.Data = "ax", "" },
		"argument as env":  func(w *spec.Exec) { w.Args, w.Env = []string{"1", "2", "A=b"}, nil },
		"env":              func(w *spec.Exec) { w.Env = map[string]string{"A": "c"} },
	} {
		w := base
		change(&w)
		hash := identity(w, nil)
		if other, taken := seen[hash]; taken {
			t.Errorf("%s and %s have one identity", name, other)
		}
		seen[hash] = name
	}
	policy := base
	policy.Rerun, policy.RerunInterval, policy.Timeout, policy.Revert, policy.Blocking = "never", 60, 5, "z", "background"
	if identity(policy, nil) != identity(base, nil) {
		t.Error("a changed policy makes another script of it: a never script would run again")
	}
}

func TestDue(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1_800_000_000+s, 0) }
	ran := func(exit int, boot string) record { return record{Start: at(0), End: at(5), Exit: exit, Boot: boot} }
	cut := record{Start: at(0), Boot: "now"}
	with := func(r record, f func(*record)) record { f(&r); return r }
	for _, tc := range []struct {
		name string
		w    spec.Exec
		r    record
		at   int64
		want bool
	}{
		{"never ran", spec.Exec{Rerun: "never"}, record{}, 0, true},
		{"cut counts as never finished", spec.Exec{Rerun: "never"}, cut, 0, true},
		{"never, succeeded", spec.Exec{Rerun: "never"}, ran(0, "old"), 1e6, false},
		{"never, failed", spec.Exec{Rerun: "never"}, ran(1, "old"), 1e6, false},
		{"once, succeeded", spec.Exec{Rerun: "once_successfully"}, ran(0, "old"), 1e6, false},
		{"once, failed, soon", spec.Exec{Rerun: "once_successfully"}, ran(1, "now"), 59, false},
		{"once, failed, a minute later", spec.Exec{Rerun: "once_successfully"}, ran(1, "now"), 60, true},
		{"once, failed, retry later", spec.Exec{Rerun: "once_successfully", RetryInterval: 600}, ran(1, "now"), 599, false},
		{"always, soon", spec.Exec{}, ran(0, "now"), 59, false},
		{"always, a minute later", spec.Exec{}, ran(0, "now"), 60, true},
		{"always, next boot", spec.Exec{}, ran(0, "old"), 1, true},
		{"always, failed, next boot", spec.Exec{}, ran(1, "old"), 1, true},
		{"once, failed, next boot", spec.Exec{Rerun: "once_successfully"}, ran(1, "old"), 1, true},
		{"failed, its interval lasts over a boot", spec.Exec{RetryInterval: 600}, ran(1, "old"), 60, false},
		{"always, infinite, next boot", spec.Exec{RerunInterval: -1}, ran(0, "old"), 1e6, false},
		{"interval from the start", spec.Exec{RerunInterval: 60}, ran(0, "now"), 60, true},
		{"interval not over", spec.Exec{RerunInterval: 60}, ran(0, "now"), 59, false},
		{"interval lasts over a boot", spec.Exec{RerunInterval: 600}, ran(0, "old"), 60, false},
		{"unless it is forgotten", spec.Exec{RerunInterval: 600, RerunForget: true}, ran(0, "old"), 60, true},
		{"failed, the rerun interval serves", spec.Exec{RerunInterval: 600}, ran(1, "now"), 599, false},
		{"failed, its own interval", spec.Exec{RerunInterval: 600, RetryInterval: 60}, ran(1, "now"), 60, true},
		{"failed, never by time", spec.Exec{RetryInterval: -1}, ran(1, "old"), 1e6, false},
		{"reruns used up", spec.Exec{RerunInterval: 60, RerunMax: 2}, with(ran(0, "now"), func(r *record) { r.Rerun = 2 }), 1e6, false},
		{"reruns left", spec.Exec{RerunInterval: 60, RerunMax: 2}, with(ran(0, "now"), func(r *record) { r.Rerun = 1 }), 1e6, true},
		{"retries used up", spec.Exec{RetryInterval: 60, RetryMax: 1}, with(ran(1, "now"), func(r *record) { r.Retry = 1 }), 1e6, false},
		{"counts are those of a boot", spec.Exec{RetryInterval: 60, RetryMax: 1}, with(ran(1, "old"), func(r *record) { r.Retry = 1 }), 60, true},
		{"reruns used up before this boot", spec.Exec{RerunMax: 2}, with(ran(0, "old"), func(r *record) { r.Rerun = 2 }), 1, true},
		{"clock set back", spec.Exec{RerunInterval: 600}, ran(0, "now"), -10, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, why := due(tc.w, tc.r, "now", at(tc.at)); got != tc.want {
				t.Fatalf("due: %v (%s), want %v", got, why, tc.want)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	w := spec.Exec{Name: "a"}
	r := following(w, record{}, "")
	for n, exit := range []int{0, 1, 1, 0, 0} {
		r.Start, r.End, r.Exit = time.Unix(1, 0), time.Unix(2, 0), exit
		r = following(w, r, "")
		want := []record{{Rerun: 1}, {Rerun: 1, Retry: 1}, {Rerun: 1, Retry: 2}, {Rerun: 2}, {Rerun: 3}}[n]
		if r.Rerun != want.Rerun || r.Retry != want.Retry {
			t.Fatalf("after run %d: %d reruns and %d retries, want %d and %d", n+1, r.Rerun, r.Retry, want.Rerun, want.Retry)
		}
	}
}

func TestFailureShowsAndWaits(t *testing.T) {
	dir := t.TempDir()
	want := []spec.Exec{{Name: "bad", Data: "exit 3\n"}, {Name: "good", Data: "true\n"}}
	it := newItem(want, dir, itemtest.Journal(t, t.TempDir()))
	if said := failures(t, it); !strings.Contains(said, "bad: it ended with exit 3 at ") || !strings.Contains(said, "/log") {
		t.Fatalf("it says %q, want the script, its exit and its log", said)
	}
	drift := checked(t, it)
	if len(drift) != 1 || drift[0].Key != "bad" || drift[0].Action != spec.ActionFailed || drift[0].From != "exit 3" {
		t.Fatalf("drift %+v", drift)
	}
	if err := pass(t, it); err != nil {
		t.Fatalf("it was tried again at once: %v", err)
	}
	it.now = func() time.Time { return time.Now().Add(time.Minute) }
	if drift := checked(t, it); len(drift) != 2 || drift[0].Action != spec.ActionRun {
		t.Fatalf("a minute later: %+v", drift)
	}
}

func TestHaltStopsTheRest(t *testing.T) {
	out := t.TempDir() + "/out"
	for policy, ran := range map[string]string{"foreground": "b", "foreground_halt_pod_on_failure": ""} {
		it := newItem([]spec.Exec{
			{Name: "a", Data: "exit 1\n", Blocking: policy},
			{Name: "b", Data: "printf b >" + out + "\n"},
		}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
		if said := failures(t, it); !strings.Contains(said, "a: ") {
			t.Errorf("%s: it says %q", policy, said)
		}
		if got := read(t, out); got != ran {
			t.Errorf("%s: the later script wrote %q, want %q", policy, got, ran)
		}
		_ = os.Remove(out) // with halt it was never written
	}
}

// A halt holds at every pass until the script has succeeded, also where its policy
// never tries it again.
func TestHaltHoldsAcrossPasses(t *testing.T) {
	for _, rerun := range []string{"always", "once_successfully", "never"} {
		out, gate := t.TempDir()+"/out", t.TempDir()+"/gate"
		it := newItem([]spec.Exec{
			{Name: "a", Rerun: rerun, RetryInterval: 3600, Data: "test -e " + gate + "\n", Blocking: "foreground_halt_pod_on_failure"},
			{Name: "b", Data: "printf b >" + out + "\n"},
		}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
		now := time.Now()
		it.now = func() time.Time { return now }
		for range 3 {
			if failures(t, it) == "" {
				t.Errorf("%s: the failure is not shown", rerun)
			}
			if drift := checked(t, it); len(drift) != 2 || drift[1].Action != spec.ActionDefer || !strings.Contains(drift[1].Reason, `waits for "a" to succeed`) {
				t.Errorf("%s: %+v", rerun, drift)
			}
			now = now.Add(10 * time.Minute)
		}
		if got := read(t, out); got != "" {
			t.Errorf("%s: the later script ran", rerun)
		}
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		if err := pass(t, it); err != nil {
			t.Error(err)
		}
		if got, want := read(t, out), map[bool]string{true: "", false: "b"}[rerun == "never"]; got != want {
			t.Errorf("%s: after the script may succeed the later one wrote %q, want %q", rerun, got, want)
		}
	}
}

// Divingbell's manual: an interval goes on over a restart, a count does not. The
// root of a node is new at each boot.
func TestIntervalsAndCountsOverBoots(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    spec.Exec
		runs string // at minutes 0, 1, 2 of each of three boots, an hour apart
	}{
		{"as often as Divingbell", spec.Exec{}, "111 111 111"},
		{"interval of two hours", spec.Exec{RerunInterval: 7200}, "100 000 100"},
		{"interval that is forgotten", spec.Exec{RerunInterval: 7200, RerunForget: true}, "100 100 100"},
		{"never by time", spec.Exec{RerunInterval: -1}, "100 100 100"},
		{"count", spec.Exec{RerunMax: 1}, "110 110 110"},
		{"count with an interval", spec.Exec{RerunInterval: 60, RerunMax: 1}, "110 110 110"},
		{"once a root", spec.Exec{Rerun: "never"}, "100 100 100"},
		{"once a machine", spec.Exec{Rerun: "never", Once: "per-machine"}, "100 000 000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := t.TempDir() + "/out"
			tc.w.Name, tc.w.Data = "s", "printf x >>"+out+"\n"
			it := newItem([]spec.Exec{tc.w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
			begun, had, got := time.Now(), 0, ""
			for boot := range 3 {
				it.scopes.Kernel, it.scopes.Root = fmt.Sprint("boot-", boot), fmt.Sprint("root-", boot)
				for minute := range 3 {
					it.now = func() time.Time {
						return begun.Add(time.Duration(boot)*time.Hour + time.Duration(minute)*time.Minute)
					}
					if err := pass(t, it); err != nil {
						t.Fatal(err)
					}
					n := len(read(t, out))
					got += fmt.Sprint(n - had)
					had = n
				}
				got += " "
			}
			if got = strings.TrimSpace(got); got != tc.runs {
				t.Errorf("runs %s, want %s", got, tc.runs)
			}
		})
	}
}

// A timeout ends grandchildren too: Divingbell's survived.
func TestTimeoutEndsTheGroup(t *testing.T) {
	pid := t.TempDir() + "/pid"
	w := spec.Exec{Name: "slow", Timeout: 1, Data: "sleep 300 & echo $! >" + pid + "\nwait\n"}
	var it *Item
	for ; w.Timeout < 500; w.Timeout *= 4 { // until the machine is quick enough for it to begin at all
		it = newItem([]spec.Exec{w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
		if said := failures(t, it); !strings.Contains(said, fmt.Sprintf("did not end within %s", time.Duration(w.Timeout)*time.Second)) {
			t.Fatalf("it says %q", said)
		}
		if info, err := os.Stat(pid); err == nil && info.Size() > 0 {
			break
		}
	}
	child, err := strconv.Atoi(strings.TrimSpace(read(t, pid)))
	if err != nil {
		t.Fatal(err)
	}
	// The process that adopts it may be slow to reap it, so a zombie counts as ended.
	runs := func() bool {
		stat := read(t, fmt.Sprintf("/proc/%d/stat", child))
		return stat != "" && !strings.Contains(stat, ") Z ")
	}
	for end := time.Now().Add(time.Minute); runs() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // a signal takes a moment
	}
	if runs() {
		t.Errorf("grandchild %d still runs", child)
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	if r, err := it.script(w).history(); err != nil || r.Exit != 143 || r.Cause != fmt.Sprintf("did not end within %s", time.Duration(w.Timeout)*time.Second) {
		t.Errorf("record %+v, %v; want exit 143 for a timeout", r, err)
	}
}

func TestLogIsBounded(t *testing.T) {
	w := spec.Exec{Name: "loud", Data: "head -c 9000000 /dev/zero; sleep 1.5; head -c 5000000 /dev/zero; echo\n"}
	it := newItem([]spec.Exec{w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	if got := read(t, it.script(w).dir+"/log"); !strings.HasPrefix(got, "(the log grew too large") || len(got) > process.MaxLog {
		t.Fatalf("the log has %d bytes and begins with %.60q", len(got), got)
	}
}

func TestBackground(t *testing.T) {
	gate, dir := t.TempDir()+"/gate", t.TempDir()
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	w := spec.Exec{Name: "bg", Blocking: "background", Data: "read x <" + gate + "\nexit 4\n"}
	j := itemtest.Journal(t, t.TempDir())
	it := newItem([]spec.Exec{w}, dir, j)
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	another := newItem([]spec.Exec{w}, dir, j) // the next pass makes new items
	if drift := checked(t, another); len(drift) != 1 || drift[0].Action != spec.ActionDefer || !strings.Contains(drift[0].Reason, "runs since") {
		t.Errorf("while it runs: %+v", drift)
	}
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := it.Wait(); err != nil {
		t.Errorf("wait: %v", err)
	}
	if drift := checked(t, another); len(drift) != 1 || drift[0].Action != spec.ActionFailed {
		t.Errorf("after it ended: %+v", drift)
	}
}

// The pass that began a script may be over when its end cannot be written: it is said then.
func TestAnEndThatCannotBeWrittenIsSaid(t *testing.T) {
	gate := t.TempDir() + "/gate"
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	w := spec.Exec{Name: "bg", Blocking: "background", Data: "read x <" + gate + "\n"}
	it, said := newItem([]spec.Exec{w}, t.TempDir(), itemtest.Journal(t, t.TempDir())), ""
	it.log = func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	reads, err := os.OpenFile(gate, os.O_WRONLY, 0) // once the script has begun: it is in that folder, too
	if err != nil {
		t.Fatal(err)
	}
	err = os.RemoveAll(it.script(w).dir)
	_, gone := reads.WriteString("go\n")
	if err := errors.Join(err, gone, reads.Close()); err != nil {
		t.Fatal(err)
	}
	if err := it.Wait(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(said, `run script "bg" in the background`) {
		t.Errorf("%v; said %q", err, said)
	}
}

// slow is a Runner whose waiters hear of an end and are then held.
type slow struct {
	*process.Group
	heard, held chan struct{}
}

func (s slow) Wait(ctx context.Context, id string) error {
	err := s.Group.Wait(ctx, id)
	s.heard <- struct{}{}
	<-s.held
	return err
}

// A script that ended, and whose end is not written down yet, was not cut: a pass beside who waits
// for it does not run it again. What that one writes later is not about a later run.
func TestAnEndIsKnownUntilItIsWritten(t *testing.T) {
	dir, ran, j := t.TempDir(), t.TempDir()+"/ran", itemtest.Journal(t, t.TempDir())
	w := spec.Exec{Name: "bg", Blocking: "background", Data: "echo >>" + ran + "\nexit 4\n"}
	r := slow{new(process.Group), make(chan struct{}), make(chan struct{})}
	it, another := newItem([]spec.Exec{w}, dir, j), newItem([]spec.Exec{w}, dir, j)
	it.runner, another.runner = r, r.Group
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	<-r.heard
	if err := errors.Join(pass(t, another), another.Wait()); err != nil {
		t.Fatal(err)
	}
	last, err := it.script(w).history()
	if err != nil || last.Exit != 4 || !last.finished() || read(t, ran) != "\n" {
		t.Errorf("a pass beside the waiter: %+v, %v; ran %q", last, err, read(t, ran))
	}
	another.now = func() time.Time { return last.Start.Add(2 * pace * time.Second) }
	if err := errors.Join(pass(t, another), another.Wait()); err != nil {
		t.Fatal(err)
	}
	if last, err = it.script(w).history(); err != nil || last.Retry != 1 {
		t.Fatalf("it did not run again: %+v, %v", last, err)
	}
	r.held <- struct{}{}
	if err := it.Wait(); err != nil {
		t.Error(err)
	}
	if now, err := it.script(w).history(); err != nil || now != last {
		t.Errorf("the waiter of the first run wrote %+v, %v over %+v", now, err, last)
	}
}

// orphaned is a Runner that still has what an agent began which was killed then.
type orphaned struct {
	*process.Group
	id string
}

func (o orphaned) Start(context.Context, process.Command) (string, error) {
	return o.id, process.ErrRuns
}

// A run that goes on, and of which no record says so, is the one that is due.
func TestARunOfAnAgentThatWasKilledIsTakenUp(t *testing.T) {
	it := newItem([]spec.Exec{{Name: "a", Data: "true\n"}}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
	s, group := it.script(it.want[0]), new(process.Group)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := group.Start(t.Context(), process.Command{Args: []string{"/bin/sh", "-c", "echo said; exit 4"}, Dir: s.dir, Log: filepath.Join(s.dir, logFile)})
	if err != nil {
		t.Fatal(err)
	}
	it.runner = orphaned{group, id}
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	r, err := s.history()
	if last, of := it.Last("a"); errors.Join(err, of) != nil || r.Exit != 4 || last.Output != "said\n" {
		t.Errorf("%+v, %v; %+v, %v", r, err, last, of)
	}
}

func TestOnce(t *testing.T) {
	dir := t.TempDir()
	want := []spec.Exec{
		{Name: "machine", Data: "true\n", Rerun: "never", Once: "per-machine"},
		{Name: "root", Data: "true\n", Rerun: "never"},
	}
	j := itemtest.Journal(t, t.TempDir())
	it := newItem(want, dir, j)
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	it.scopes.Root, it.scopes.Kernel = "root-2", "boot-2"
	if drift := checked(t, it); len(drift) != 1 || drift[0].Key != "root" {
		t.Fatalf("on another root: %+v, want only the per-root script", drift)
	}
	// Left out for a generation and wanted again, it still ran.
	gone := newItem([]spec.Exec{{Name: "other", Data: "true\n"}}, dir, j)
	if err := pass(t, gone); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(it.script(want[0]).dir, "machine")); !os.IsNotExist(err) {
		t.Errorf("the unwanted script was not swept away: %v", err)
	}
	if drift := checked(t, newItem(want, dir, j)); len(drift) > 0 {
		t.Fatalf("wanted again: %+v", drift)
	}
}

// A changed script is another one: the old one's revert comes before the new one runs.
func TestRevertOfAChangedScript(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()+"/out"
	j := itemtest.Journal(t, t.TempDir())
	w := spec.Exec{Name: "s", Data: "echo one >>" + out + "\n", Revert: "echo undo one >>" + out + "\n"}
	if err := pass(t, newItem([]spec.Exec{w}, dir, j)); err != nil {
		t.Fatal(err)
	}
	w.Data, w.Revert = "echo two >>"+out+"\n", "echo undo two >>"+out+"\n"
	it := newItem([]spec.Exec{w}, dir, j)
	drift := checked(t, it)
	if len(drift) != 2 || drift[0].Action != spec.ActionRun || drift[1].Action != spec.ActionRemove {
		t.Fatalf("drift %+v", drift)
	}
	for _, e := range j.Entries(Name) {
		if e.Key == drift[1].Key {
			if err := it.Restore(t.Context(), []item.Entry{e}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if got := read(t, out); got != "one\nundo one\ntwo\n" {
		t.Fatalf("ran %q", got)
	}
}

func TestCommand(t *testing.T) {
	for data, want := range map[string]string{
		"echo\n":                  "/bin/sh|./s|arg",
		"#!/bin/bash\necho\n":     "/bin/bash|./s|arg",
		"#! /bin/sh -eu\n":        "/bin/sh|-eu|./s|arg",
		"#!/bin/sh\r\n":           "/bin/sh|./s|arg",
		"#!/usr/bin/env\tpython3": "/usr/bin/env|python3|./s|arg",
		"#!/usr/bin/env -S python3 -I\nprint()\n": "/usr/bin/env|-S python3 -I|./s|arg",
		"# !/bin/other\n":                         "/bin/sh|./s|arg",
	} {
		if got := strings.Join(command(spec.Exec{Name: "s", Data: data, Args: []string{"arg"}}), "|"); got != want {
			t.Errorf("%q runs %s, want %s", data, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    spec.Exec
		want string
	}{
		{"slash", spec.Exec{Name: "a/b", Data: "x"}, "used as a name"},
		{"dots", spec.Exec{Name: "..", Data: "x"}, "used as a name"},
		{"our own file", spec.Exec{Name: "run.json", Data: "x"}, "used by a file"},
		{"empty", spec.Exec{Name: "a"}, "the script is empty"},
		{"policy", spec.Exec{Name: "a", Data: "x", Rerun: "sometimes"}, "rerun: "},
		{"blocking", spec.Exec{Name: "a", Data: "x", Blocking: "maybe"}, "blocking: "},
		{"once", spec.Exec{Name: "a", Data: "x", Once: "per-life"}, "per-life"},
		{"interpreter", spec.Exec{Name: "a", Data: "#!/no/such\n"}, "/no/such"},
		{"relative interpreter", spec.Exec{Name: "a", Data: "#!sh\n"}, `"sh"`},
		{"revert's interpreter", spec.Exec{Name: "a", Data: "x", Revert: "#!/no/such\n"}, "/no/such"},
		{"env", spec.Exec{Name: "a", Data: "x", Env: map[string]string{"A=B": ""}}, "A=B"},
		{"negative", spec.Exec{Name: "a", Data: "x", Timeout: -1}, "timeout: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			it := newItem([]spec.Exec{tc.w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
			drift := checked(t, it)
			if len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, tc.want) {
				t.Fatalf("drift %+v, want a refusal because of %q", drift, tc.want)
			}
		})
	}
}

// What ran cannot be guessed from a damaged record: it is refused, not run.
func TestDamagedHistory(t *testing.T) {
	w := spec.Exec{Name: "a", Data: "true\n", Rerun: "never"}
	it := newItem([]spec.Exec{w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(it.script(w).dir+"/run.json", []byte(`{"name":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if drift := checked(t, it); len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, "damaged") {
		t.Fatalf("drift %+v", drift)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"name":"a","start":"2026-01-01T00:00:00Z","exit":3}`), int64(60))
	f.Add([]byte(`{"start":"9999-01-01T00:00:00Z","end":"0001-01-01T00:00:01Z","rerun":-9}`), int64(1<<60))
	f.Fuzz(func(t *testing.T, data []byte, interval int64) {
		r, err := parseRecord("run.json", data)
		if err != nil {
			return
		}
		if run, next := due(spec.Exec{RerunInterval: interval}, r, "boot", time.Unix(1_800_000_000, 0)); !run && next == "" {
			t.Fatalf("%+v is not due and nothing says why", r)
		}
	})
}

// TestMain lets the test binary be the program that services start.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == process.LaunchVerb {
		fmt.Fprintln(os.Stderr, process.Launch(os.Args[2]))
		os.Exit(127)
	}
	os.Exit(m.Run())
}

// A deadline caps the log as well: it can grow by much between two looks.
func TestLogIsBoundedAtTheDeadline(t *testing.T) {
	w := spec.Exec{Name: "loud", Timeout: 1, Data: "head -c 9000000 /dev/zero; sleep 0.9; trap '' TERM; head -c 9000000 /dev/zero; sleep 0.3; head -c 9000000 /dev/zero\n"}
	it := newItem([]spec.Exec{w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
	if said := failures(t, it); !strings.Contains(said, "did not end within 1s") {
		t.Fatalf("it says %q", said)
	}
	if info, err := os.Stat(it.script(w).dir + "/log"); err != nil || info.Size() > process.MaxLog {
		t.Fatalf("the log has %d bytes, %v", info.Size(), err)
	}
}

func TestOldScriptsAreCollected(t *testing.T) {
	dir := t.TempDir()
	j := itemtest.Journal(t, t.TempDir())
	now := time.Now()
	for n := range maxUnwanted + 10 {
		it := newItem([]spec.Exec{{Name: "s", Data: fmt.Sprintf("true %d\n", n), Rerun: "never"}}, dir, j)
		it.now = func() time.Time { return now.Add(time.Duration(n) * time.Second) }
		if err := pass(t, it); err != nil {
			t.Fatal(err)
		}
	}
	dirs, err := os.ReadDir(dir)
	if err != nil || len(dirs) != maxUnwanted+1 {
		t.Errorf("%d directories are left, %v; want %d and the present one", len(dirs), err, maxUnwanted)
	}
	// The newest of them is still known.
	last := newItem([]spec.Exec{{Name: "s", Data: fmt.Sprintf("true %d\n", maxUnwanted+8), Rerun: "never"}}, dir, j)
	if drift := checked(t, last); len(drift) > 0 {
		t.Errorf("wanted again: %+v", drift)
	}
}

// The end of a script in the background is written beside the pass that started it, and beside
// later ones: what is half written then is left alone.
func TestAnEndThatIsBeingWrittenIsNotSwept(t *testing.T) {
	it := newItem([]spec.Exec{{Name: "a", Data: "true\n", Blocking: "background"}}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
	s, start := it.script(it.want[0]), time.Now().UTC()
	half := filepath.Join(s.dir, "."+runFile+".1")
	for _, row := range []struct {
		record
		stays bool
	}{
		{record{Name: "a", Root: itemtest.Scopes.Root, Boot: itemtest.Scopes.Kernel, Start: start, Unit: "ended"}, true},
		{record{Name: "a", Root: itemtest.Scopes.Root, Boot: "another", Start: start, Unit: "ended"}, false}, // a power cut left it
		{record{Name: "a", Root: itemtest.Scopes.Root, Boot: itemtest.Scopes.Kernel, Start: start, End: start}, false},
	} {
		if err := errors.Join(s.write(row.record), os.WriteFile(half, []byte("{"), 0o600), it.sweep()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(half); (err == nil) != row.stays {
			t.Errorf("%+v: its half written end: %v, want it to stay: %v", row.record, err, row.stays)
		}
	}
}

// A pipe in place of a record would hold the agent for ever.
func TestHistoryIsAFileOfOurOwn(t *testing.T) {
	w := spec.Exec{Name: "a", Data: "true\n"}
	it := newItem([]spec.Exec{w}, t.TempDir(), itemtest.Journal(t, t.TempDir()))
	dir := it.script(w).dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(dir+"/"+runFile, 0o600); err != nil {
		t.Fatal(err)
	}
	if drift := checked(t, it); len(drift) != 1 || drift[0].Action != spec.ActionRefuse {
		t.Errorf("drift %+v", drift)
	}
}

// Under systemd a script goes on when the agent is started again, and how it
// ended is written down by the next look.
func TestServices(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	dir, out := t.TempDir(), t.TempDir()
	gate := out + "/gate"
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []spec.Exec{
		{Name: "bg", Blocking: "background", Rerun: "never", Data: "read x <" + gate + "\necho ran >>" + out + "/bg\nexit 4\n"},
		{Name: "fg", Rerun: "never", Data: "setsid sleep 300 & echo $! >" + out + "/pid; cat /proc/self/oom_score_adj\n"},
	}
	j := itemtest.Journal(t, t.TempDir())
	first := New(want, Host{Dir: dir, Runner: process.Service{}, Scopes: itemtest.Scopes, Journal: j, Signed: signs(dir, want), Log: func(string, ...any) {}})
	s := first.script(want[0])
	if err := s.write(record{Name: "bg", Root: itemtest.Scopes.Root, Boot: itemtest.Scopes.Kernel, Start: time.Now()}); err != nil {
		t.Fatal(err)
	}
	id, err := first.start(t.Context(), s) // and then the agent dies
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(record{Name: "bg", Root: itemtest.Scopes.Root, Boot: itemtest.Scopes.Kernel, Start: time.Now(), Unit: id}); err != nil {
		t.Fatal(err)
	}
	it := New(want, Host{Dir: dir, Runner: process.Service{}, Scopes: itemtest.Scopes, Journal: j, Signed: signs(dir, want), Log: func(string, ...any) {}})
	if drift := checked(t, it); len(drift) != 2 || drift[0].Action != spec.ActionDefer || !strings.Contains(drift[0].Reason, "runs since") {
		t.Errorf("while it runs: %+v", drift)
	}
	if err := pass(t, it); err != nil {
		t.Error(err)
	}
	if got := read(t, it.script(want[1]).dir+"/log"); got != "0\n" {
		t.Errorf("the score is %q", got)
	}
	if err := os.WriteFile(gate, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		if !it.runner.Running(id) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := pass(t, it); err != nil {
		t.Error(err)
	}
	if drift := checked(t, it); len(drift) != 1 || drift[0].Action != spec.ActionFailed || drift[0].From != "exit 4" {
		t.Errorf("after it ended: %+v", drift)
	}
	if got := read(t, out+"/bg"); got != "ran\n" {
		t.Errorf("it ran %q", got)
	}
}

// Whatever a script does, the agent goes on, what it started is ended, and its output
// is bounded.
func TestHostileScripts(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	dir, out := t.TempDir(), t.TempDir()
	want := []spec.Exec{
		{Name: "forks", Rerun: "never", TasksMax: 20, Data: "for n in $(seq 60); do (sleep 300 & echo $! >>" + out + "/pids) & done; wait\n", Timeout: 3},
		{Name: "hangs", Rerun: "never", Data: "trap '' TERM INT HUP; echo $$ >" + out + "/hang; setsid sh -c 'trap \"\" TERM; sleep 300' & sleep 300\n", Timeout: 3},
		{Name: "floods", Rerun: "never", Data: "yes | head -c 60000000; echo the end\n"},
		{Name: "kills", Rerun: "never", Data: "kill -9 $PPID; kill -STOP $PPID; echo $PPID\n"},
		{Name: "limits", Rerun: "never", MemoryMax: 64 << 20, CPUQuota: 150, TasksMax: 30,
			Data: "u=$(grep -o 'caisson-exec-[^/]*service' /proc/self/cgroup | head -n1); systemctl show -P MemoryMax -P CPUQuotaPerSecUSec -P TasksMax $u | tr '\\n' ' '\n"},
	}
	it := New(want, Host{Dir: dir, Runner: process.Service{}, Scopes: itemtest.Scopes, Journal: itemtest.Journal(t, t.TempDir()), Signed: signs(dir, want), Log: func(string, ...any) {}})
	begun := time.Now()
	if err := pass(t, it); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 4*time.Minute { // what sleeps, sleeps for five
		t.Errorf("it took %v", took)
	}
	results := map[string]string{"forks": "did not end within 3s", "hangs": "did not end within 3s", "floods": "exit 0", "kills": "exit 0", "limits": "exit 0"}
	for _, w := range want {
		last, err := it.Last(w.Name)
		if err != nil {
			t.Fatal(err)
		}
		if last.Result != results[w.Name] && !(w.Name == "forks" && strings.HasPrefix(last.Result, "exit ")) {
			t.Errorf("%s ended with %q, want %q", w.Name, last.Result, results[w.Name])
		}
		if len(last.Output) > process.MaxLog {
			t.Errorf("%s has a log of %d bytes", w.Name, len(last.Output))
		}
		switch {
		case w.Name == "kills" && last.Output != "1\n":
			t.Errorf("its parent is %q, want systemd", last.Output)
		case w.Name == "limits" && last.Output != "1.500000s 67108864 30 ":
			t.Errorf("limits are %q", last.Output)
		}
	}
	forked := strings.Fields(read(t, out+"/pids"))
	if len(forked) == 0 {
		t.Error("nothing was forked")
	}
	for _, pid := range append(forked, strings.TrimSpace(read(t, out+"/hang"))) {
		if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, 0) == nil {
			t.Errorf("process %q is left, %v", pid, err)
		}
	}
}

// The rule for names knows every file that this item puts beside a script.
func TestOwnFilesAreReserved(t *testing.T) {
	for _, name := range []string{runFile, logFile, logFile + ".old", logFile + ".launch"} {
		if rules.Script(name) == nil {
			t.Errorf("a script may be named %s", name)
		}
	}
}

// Where logs are gathered the end of a script's output is seen, and no more.
func TestAScriptsOutputIsSaid(t *testing.T) {
	var said []string
	want := []spec.Exec{{Name: "bad", Data: "seq 1 30; echo no database >&2; exit 3\n", Rerun: "never"}, {Name: "good", Data: "echo fine\n", Rerun: "never"}}
	it := New(want, Host{Dir: t.TempDir(), Runner: new(process.Group), Scopes: itemtest.Scopes, Journal: itemtest.Journal(t, t.TempDir()), Log: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
	if err := pass(t, it); err != nil {
		t.Fatal(err)
	}
	if len(said) != saidLines+2 || said[saidLines+1] != `script "good" said: fine` || said[0] != `script "bad" said: 12` || said[saidLines-1] != `script "bad" said: no database` || !strings.HasPrefix(said[saidLines], `run script "bad": exit status 3`) {
		t.Errorf("said %q", said)
	}
}
