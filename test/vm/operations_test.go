// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// guestFleet is where a guest finds the fleet's service.
const guestFleet = "10.0.2.102:8080"

// overTime are edits of the quickstart: what its nodes do over time, with a service
// that counts slots, and a day that stands for tomorrow. The adapter that is flashed is
// a disk: each run writes one more x onto it.
func overTime(day string) []string {
	const adapter = "/dev/disk/by-id/virtio-adapter"
	return []string{
		"layer:\n", "layer:\n  persist: [/home]\n",
		"machine:\n", `health:
  - {name: ready, file: /run/ready, interval: 2s, retries: 1000}
machine:
  agent: {poll: 1m, report: {url: "http://` + guestFleet + `", interval: 10s}}
`,
		"  sysctl:\n", `  units:
    monitor.service:
      content: |
        [Service]
        ExecStart=/bin/sh -c 'see() { cat /etc/monitor/conf >>/run/seen; }; trap see HUP; see; while :; do sleep 60 & wait; done'
        ExecReload=/bin/kill -HUP $MAINPID
        [Install]
        WantedBy=multi-user.target
      state: enabled
      run: started
  sysctl:
`,
		"              vm.swappiness: 1\n", `              vm.swappiness: 1
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: adapter}
spec:
  windows: [always]
  when: [{file: /run/flash}]
  slot: {group: metal, max: 1, fleetlock: "http://` + guestFleet + `"}
  operations:
    - name: flash
      type: oneShot
      reboots: true
      check: {argv: [/bin/grep, -q, x, ` + adapter + `], timeout: 1m}
      exec: {argv: [/bin/sh, -c, 'n=$(tr -dc x <$0 | wc -c); printf x | dd of=$0 bs=1 seek=$n conv=fsync; test $(hostname) != alpha || sleep 900; systemctl reboot', ` + adapter + `], timeout: 20m}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: unchecked}
spec:
  windows: [always]
  when: [{file: /run/reboot}]
  slot: {group: metal, max: 1, fleetlock: "http://` + guestFleet + `"}
  operations:
    - {name: reboot, type: oneShot, reboots: true, exec: {argv: [/bin/sh, -c, "echo reboot >>/home/admin/marks; sync; systemctl reboot"], timeout: 5m}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: long}
spec:
  windows: [always]
  when: [{file: /run/long}]
  operations:
    - {name: long, type: oneShot, disruptive: true, exec: {argv: [/bin/sh, -c, "echo long >>/home/admin/marks; sync; sleep 900"], timeout: 20m}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: evening}
spec:
  operations:
    - name: late
      type: cron
      schedule: {date: ` + day + `, at: ["18:00"], timeZone: UTC, catchUp: true}
      exec: {argv: [/bin/sh, -c, "echo late >>/home/admin/marks; sync; sleep 900"], timeout: 20m}
    - name: never
      type: cron
      schedule: {date: ` + day + `, at: ["18:00"], timeZone: UTC}
      exec: {argv: [/bin/sh, -c, "echo never >>/home/admin/marks"], timeout: 1m}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: memory}
spec:
  windows: [noon]
  operations:
    - {name: dirty, type: realtime, conf: {sysctl: {vm.dirty_ratio: "21"}}}
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: noon}
spec: {timeZone: UTC, duration: 2h, opens: [{date: ` + day + `, at: "12:00"}]}
`,
	}
}

const monitorService = `---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: monitor}
spec:
  git: {url: "file://%s", branch: main}
  user: admin
  directories: [{from: etc, to: /etc/monitor}, {from: rules, to: /srv/rules}]
  action: reload-or-restart
`

// daily is a fleet whose nodes do things over time.
type daily struct {
	*Fleet
	day   time.Time       // its midnight is the next one
	page  string          // address of the fleet's service
	alpha machine.Options // with a state disk
	beta  machine.Options // without one
}

// TestLongOperations is what becomes of windows, schedules and services on a node with a
// state disk, over two power cuts with a day between them: nothing runs twice, and nothing
// is switched by half.
func TestLongOperations(t *testing.T) {
	require.Long(t)
	f := newDaily(t)
	m := f.start(t, f.alpha)
	s := f.ready(t, m)
	t.Run("a service follows its repository", func(t *testing.T) { f.follows(t, s) })
	t.Run("a window opens", func(t *testing.T) { f.window(t, s) })
	t.Run("power cuts, and a day between them", func(t *testing.T) { f.dayOff(t, m, s) })
}

// TestLongTurns is a slot between two nodes, one of which remembers nothing: each is
// disturbed once, and never both at once, whether the machine reboots or its power goes.
func TestLongTurns(t *testing.T) {
	require.Long(t)
	f := newDaily(t)
	beta, alpha := f.start(t, f.beta), f.start(t, f.alpha)
	f.turns(t, alpha, f.ready(t, alpha), beta, f.ready(t, beta))
}

func newDaily(t *testing.T) *daily {
	t.Helper()
	require.Tool(t, "git")
	day := time.Now().UTC().AddDate(0, 0, 1).Truncate(24 * time.Hour)
	f := &daily{Fleet: fleet(t, overTime(day.Format(time.DateOnly))...), day: day}
	f.commit(t, "one")
	f.append(t, fmt.Sprintf(monitorService, filepath.Join(f.Dir, "conf")))
	f.update(t)
	f.serveFleet(t)
	f.alpha = f.managed(t, f.withDisk(t))
	f.beta = f.managed(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	return f
}

// managed is a machine by hand, with an adapter that can be flashed.
func (f *daily) managed(t *testing.T, o machine.Options) machine.Options {
	t.Helper()
	o = f.byHand(t, o)
	o.Forwards[guestFleet] = f.page
	file := filepath.Join(f.Dir, o.Name+".adapter")
	sh(t, `truncate -s 4096 "$1"`, file)
	o.Extra = append(o.Extra, "-drive", "if=none,format=raw,id=adapter,cache=writethrough,file="+file, "-device", "virtio-blk-pci,addr=0x14,drive=adapter,serial=adapter")
	return o
}

// flashes is how often the adapter of a node was.
func (f *daily) flashes(t *testing.T, node string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.Dir, node+".adapter"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), "x")
}

// serveFleet starts the service that counts slots, with an operator.
func (f *daily) serveFleet(t *testing.T, more ...string) {
	t.Helper()
	token := f.must(t, "fleet", "token", "eve", "--role", "operator", "--tokens", "tokens")
	if err := os.WriteFile(filepath.Join(f.Dir, "token"), []byte(strings.TrimSpace(token)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	f.page, err = f.Server(t.Context(), append([]string{"fleet", "serve", "--from", f.To(), "--site", "site.yaml", "--tokens", "tokens",
		"--host", "10.0.2.102", "--listen", "127.0.0.1:0", "--slot", "metal=1"}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
}

// holder is who has the slot, as the service says.
func (f *daily) holder(t *testing.T) string {
	t.Helper()
	return f.must(t, "fleet", "slots", "--at", "http://"+f.page, "--token-file", "token")
}

// ready logs in to a node that has just come up, and makes it well.
func (f *daily) ready(t *testing.T, m *machine.Machine) *machine.Session {
	t.Helper()
	s := f.login(t, m)
	run(t, s, "sudo touch /run/ready")
	return s
}

func (f *daily) append(t *testing.T, text string) {
	t.Helper()
	sh(t, `printf %s "$2" >>"$1"`, filepath.Join(f.Dir, "site.yaml"), text)
}

// commit writes one word into all files of the repository, and returns its commit.
func (f *daily) commit(t *testing.T, word string) string {
	t.Helper()
	sh(t, `cd "$1"; mkdir -p conf/etc conf/rules
test -d conf/.git || git -C conf init -q --initial-branch=main
echo "$2" >conf/etc/conf; echo "$2" >conf/rules/all
git -C conf add .
git -C conf -c user.name=Ann -c user.email=ann@example.org commit -q -m "$2"
git -C conf rev-parse HEAD >commit`, f.Dir, word)
	id, err := os.ReadFile(filepath.Join(f.Dir, "commit"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

func (f *daily) update(t *testing.T) {
	t.Helper()
	f.must(t, "services", "update")
	f.publish(t)
}

// has compares what the places of the service have with what its unit has read.
func has(t *testing.T, s *machine.Session, word string) {
	t.Helper()
	if got := run(t, s, "cat /etc/monitor/conf /srv/rules/all; tail -n1 /run/seen"); got != word+"\n"+word+"\n"+word {
		t.Errorf("files, and what the unit has read of them: %q, want %s three times", got, word)
	}
}

// stands waits until an operation stands as wanted: its state, for what it waits, and a
// part of why.
func stands(t *testing.T, s *machine.Session, name string, state spec.OperationState, what, why string) spec.OperationStatus {
	t.Helper()
	var o spec.OperationStatus
	if becomes(s.Console, func() bool {
		all := status(t, s).Operations
		i := slices.IndexFunc(all, func(o spec.OperationStatus) bool { return o.Name == name })
		if i >= 0 {
			o = all[i]
		}
		return i >= 0 && o.State == state && o.For == what && strings.Contains(o.Detail, why)
	}) {
		return o
	}
	t.Fatalf("%s never became %s for %q (%s), it is %+v", name, state, what, why, o)
	return o
}

// marks is what operations have written on the state disk, a word a run.
func marks(t *testing.T, s *machine.Session, want string) {
	t.Helper()
	if got := run(t, s, "cat /home/admin/marks 2>/dev/null | sort | tr '\\n' ' '"); got != want {
		t.Errorf("operations have run: %q, want %q", got, want)
	}
}

// setClock gives the kernel a time, and says that a time server did.
func setClock(t *testing.T, s *machine.Session, at string) {
	t.Helper()
	if at != "" {
		run(t, s, "sudo date -u -s '"+at+"'")
	}
	// struct timex of adjtimex(2): modes are status, estimated and largest error, which are 0.
	run(t, s, `sudo perl -e '$x = pack("L x4 q4 l x4", 0x1c, 0, 0, 0, 0, 0) . "\0" x 200; syscall(159, $x) >= 0 or die "adjtimex: $!"'`)
}

// follows takes the service from commit to commit: by the repository, by the lock, and
// back after an edit on the node.
func (f *daily) follows(t *testing.T, s *machine.Session) {
	has(t, s, "one")
	two := f.commit(t, "two")
	f.update(t)
	ask(t, s)
	has(t, s, "two")
	// An agent that is told of the change may put the link back in between.
	if got := run(t, s, "sudo sh -c 'echo edited >/etc/monitor/conf; until rm /etc/monitor && mkdir /etc/monitor; do :; done; echo edited >/etc/monitor/conf' 2>&1 || true"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("an edit on the node: %q", got)
	}
	ask(t, s)
	has(t, s, "two")

	f.commit(t, "three")
	f.update(t)
	run(t, s, "until test \"$(tail -n1 /run/seen)\" = three; do sleep 1; done") // nobody asks for it
	has(t, s, "three")
	f.must(t, "services", "rollback", "monitor", "--to", two, "--reason", "alerts are lost")
	f.publish(t)
	ask(t, s)
	has(t, s, "two")
	f.must(t, "services", "forward", "monitor")
	f.publish(t)
	ask(t, s)
	has(t, s, "three")
	if st := status(t, s); st.Health != spec.HealthOK {
		t.Errorf("health %s: %s", st.Health, st.HealthDetail)
	}
}

// turns has both nodes flash their adapters, one slot between them: the power of the one
// goes while it does, and it is its turn until it is well again. Beta has no state disk.
func (f *daily) turns(t *testing.T, alpha *machine.Machine, s *machine.Session, beta *machine.Machine, other *machine.Session) {
	stands(t, other, "unchecked/reboot", spec.OperationCannot, "", "no ledger")
	run(t, s, "sudo touch /run/flash; sudo caisson-agent operation run adapter/flash")
	if !becomes(s.Console, func() bool { return f.flashes(t, "alpha") > 0 }) {
		t.Fatalf("alpha does not flash: %+v", status(t, s).Operations)
	}
	run(t, other, "sudo touch /run/flash; sudo caisson-agent operation run adapter/flash")
	stands(t, other, "adapter/flash", spec.OperationWaiting, spec.ForSlot, "alpha")
	alpha.PowerCut()

	f.alpha.Name = "alpha-cut"
	alpha = f.start(t, f.alpha)
	s = f.login(t, alpha)
	if o := stands(t, s, "adapter/flash", spec.OperationWaiting, spec.ForGates, "ready"); o.Slot != "metal" {
		t.Errorf("after a power cut the slot is not kept: %+v", o)
	}
	stands(t, other, "adapter/flash", spec.OperationWaiting, spec.ForSlot, "alpha")
	if got := f.holder(t); !strings.Contains(got, "alpha") {
		t.Errorf("holder of the slot: %s", got)
	}
	from, key := beta.Console.Len(), f.key(t, "beta")
	run(t, s, "sudo touch /run/ready")
	stands(t, s, "adapter/flash", spec.OperationDone, "", "")
	waitFor(t, beta, from, "caisson: entering the layer")
	other = f.login(t, beta)

	// Beta remembers nothing, and is not well yet: the slot is its own.
	run(t, s, "sudo touch /run/reboot; sudo caisson-agent operation run unchecked/reboot")
	stands(t, s, "unchecked/reboot", spec.OperationWaiting, spec.ForSlot, "beta")
	marks(t, s, "")
	f.accept(t, "beta", key)
	from = alpha.Console.Len()
	run(t, other, "sudo touch /run/ready /run/flash")
	waitFor(t, alpha, from, "caisson: entering the layer")
	if o := stands(t, other, "adapter/flash", spec.OperationDone, "", ""); o.Detail != "its check says that it is done" {
		t.Errorf("without a ledger: %+v", o)
	}
	s = f.ready(t, alpha)
	stands(t, s, "unchecked/reboot", spec.OperationDone, "", "")
	marks(t, s, "reboot")
	if a, b := f.flashes(t, "alpha"), f.flashes(t, "beta"); a != 1 || b != 1 {
		t.Errorf("adapters were flashed %d and %d times", a, b)
	}
}

// accept waits until another key counts for a node without a state disk than before its
// boot, and accepts it meanwhile: one that is ten minutes old gives way by itself.
func (f *daily) accept(t *testing.T, node, before string) {
	t.Helper()
	var err error
	if !becomes(nil, func() bool {
		key, other := f.keys(t, node)
		if key == before && other != "" {
			_, err = f.Caisson(t.Context(), "fleet", "accept", node, other, "--at", "http://"+f.page, "--token-file", "token")
			key = f.key(t, node)
		}
		return key != before
	}) {
		t.Fatalf("no other key of %s counts: %v", node, err)
	}
}

// key is the one that counts for a node, as the service says.
func (f *daily) key(t *testing.T, node string) string {
	t.Helper()
	key, _ := f.keys(t, node)
	return key
}

// keys are the one that counts for a node, and the other one that reports for it, if any.
func (f *daily) keys(t *testing.T, node string) (counts, offered string) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(f.Dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.page+"/v1/nodes/"+node, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it was only read
	var d struct {
		Key     string
		Offered struct{ Report struct{ Key string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil || d.Key == "" {
		t.Fatalf("no key of %s: %s, %v", node, resp.Status, err)
	}
	return d.Key, d.Offered.Report.Key
}

// window holds a value while its window is open, and only reports before.
func (f *daily) window(t *testing.T, s *machine.Session) {
	setClock(t, s, f.day.Add(11*time.Hour).Format(time.DateTime))
	run(t, s, "echo 5 | sudo tee /proc/sys/vm/dirty_ratio")
	ask(t, s)
	st := status(t, s)
	if i := slices.IndexFunc(st.Drift, func(d spec.Drift) bool { return d.Key == "vm.dirty_ratio" || d.Key == "vm/dirty_ratio" }); i < 0 || st.Drift[i].Action != spec.ActionReport {
		t.Errorf("outside of the window: drift %+v", st.Drift)
	}
	expect(t, s, "5")
	stands(t, s, "memory/dirty", spec.OperationWaiting, spec.ForWindow, "window noon opens")
	setClock(t, s, f.day.Add(12*time.Hour+time.Minute).Format(time.DateTime))
	ask(t, s)
	expect(t, s, "21")
	stands(t, s, "memory/dirty", spec.OperationHolding, "", "")
	run(t, s, "echo 5 | sudo tee /proc/sys/vm/dirty_ratio; sudo caisson-agent sync >&2 || true")
	expect(t, s, "21")
}

// dayOff pulls the cord while an operation runs and a service is switched, brings the
// node up a day later, and pulls it again while it makes up for what it has missed.
func (f *daily) dayOff(t *testing.T, m *machine.Machine, s *machine.Session) {
	run(t, s, "sudo caisson-agent service freeze monitor --reason look")
	before := run(t, s, "cat /etc/monitor/conf")
	f.commit(t, "four")
	f.update(t)
	ask(t, s)
	has(t, s, before) // frozen

	run(t, s, "sudo touch /run/long; sudo caisson-agent operation run long/long")
	stands(t, s, "long/long", spec.OperationRunning, "", "")
	until(t, s, "long")
	// What is not known before the cut is not missed.
	run(t, s, "until sudo grep -qrs evening/late /var/lib/caisson/ops && sudo grep -qrs evening/never /var/lib/caisson/ops; do sleep 1; done")
	go s.Run(t.Context(), "sudo caisson-agent service forward monitor && sudo caisson-agent sync") // it has no end: the machine has
	after := rand.N(4 * time.Second)
	time.Sleep(after)
	m.PowerCut()
	t.Logf("cut %v after the switch was ordered", after)

	f.alpha.Name = "alpha-later"
	f.alpha.Extra = append(f.alpha.Extra, "-rtc", "base="+f.day.Add(33*time.Hour).Format("2006-01-02T15:04:05"))
	m = f.start(t, f.alpha)
	s = f.ready(t, m)
	if got := run(t, s, "cat /etc/monitor/conf /srv/rules/all; tail -n1 /run/seen"); got != before+"\n"+before+"\n"+before && got != "four\nfour\nfour" {
		t.Errorf("after a power cut in the switch: %q", got)
	}
	run(t, s, "sudo caisson-agent service forward monitor")
	ask(t, s)
	has(t, s, "four")
	if o := stands(t, s, "long/long", spec.OperationFailed, "", "interrupted"); o.Attempts != 1 {
		t.Errorf("what the power cut has interrupted: %+v", o)
	}
	stands(t, s, "evening/late", spec.OperationWaiting, spec.ForClock, "")
	marks(t, s, "long")
	setClock(t, s, "")
	until(t, s, "late")
	if o := stands(t, s, "evening/never", spec.OperationScheduled, "", ""); o.Missed != 1 {
		t.Errorf("without catchUp: %+v", o)
	}

	run(t, s, "sudo caisson-agent service freeze monitor --reason look")
	f.commit(t, "five")
	f.update(t)
	stands(t, s, "evening/late", spec.OperationRunning, "", "")
	m.PowerCut()

	f.alpha.Name = "alpha-again"
	s = f.ready(t, f.start(t, f.alpha))
	setClock(t, s, "")
	ask(t, s)
	has(t, s, "four") // a freeze outlives a power cut
	stands(t, s, "evening/late", spec.OperationFailed, "", "interrupted")
	marks(t, s, "late long")
}

// until waits until an operation has left its mark.
func until(t *testing.T, s *machine.Session, mark string) {
	t.Helper()
	run(t, s, "until grep -q "+mark+" /home/admin/marks; do sleep 1; done")
}
