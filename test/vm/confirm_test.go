// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// noPorts leaves a node no port to connect from: nothing new leaves it, and a session
// that is there goes on.
const noPorts = "    net.ipv4.ip_local_reserved_ports: 1-65535\n"

// noLink is a unit that takes a node's only link down.
const noLink = `  units:
    cut.service:
      content: |
        [Service]
        Type=oneshot
        RemainAfterExit=yes
        ExecStart=/bin/sh -c 'echo 0x1002 >/sys/class/net/eth0/flags'
        ExecStop=/bin/sh -c 'echo 0x1003 >/sys/class/net/eth0/flags'
      run: started
`

// TestLongConfirm is what becomes of changes that cut a node off, and of those that wait
// for an operator: with the verb and without, over the end of the agent and over that of
// the machine.
func TestLongConfirm(t *testing.T) {
	require.Long(t)
	f := fleet(t, "    kernel.panic: 30\n", "    kernel.panic: 30\n    vm.dirty_ratio: 21\n")
	m := f.start(t, f.byHand(t, f.withDisk(t)))
	s := f.login(t, m)
	f.trials(t, m, s)
}

// ratio publishes another value of a parameter.
func (f *Fleet) ratio(t *testing.T, from, to string, more ...string) {
	t.Helper()
	f.edit(t, "vm.dirty_ratio: "+from+"\n", "vm.dirty_ratio: "+to+"\n")
	f.publish(t, more...)
}

// ask asks for what is published. It ends with an error where that is undone.
func ask(t *testing.T, s *machine.Session) {
	t.Helper()
	run(t, s, "sudo caisson-agent sync >&2 || true")
}

func expect(t *testing.T, s *machine.Session, ratio string) {
	t.Helper()
	if got := run(t, s, "cat /proc/sys/vm/dirty_ratio"); got != ratio {
		t.Errorf("the ratio is %s, not %s", got, ratio)
	}
}

// undone waits until a generation is, and the ratio is as before.
func undone(t *testing.T, s *machine.Session, ratio, why string) {
	t.Helper()
	var st spec.Status
	if !becomes(s.Console, func() bool { st = status(t, s); return st.Trial != nil && strings.Contains(st.Trial.Undone, why) }) {
		t.Fatalf("nothing was undone since %s: %+v, trial %+v", why, st, st.Trial)
	}
	expect(t, s, ratio)
}

func (f *Fleet) trials(t *testing.T, m *machine.Machine, s *machine.Session) {
	t.Helper()
	expect(t, s, "21")

	// All that came along is undone with what cuts the node off.
	f.edit(t, "    vm.dirty_ratio", noPorts+"    vm.dirty_ratio")
	f.ratio(t, "21", "22")
	ask(t, s)
	undone(t, s, "21", "the registry was not reached")
	if got := run(t, s, "cat /proc/sys/net/ipv4/ip_local_reserved_ports"); got != "" {
		t.Errorf("ports %s are reserved", got)
	}
	f.edit(t, noPorts, "")

	f.ratio(t, "22", "23", "--confirm", "10m")
	ask(t, s)
	if st := status(t, s); st.Activity != spec.ActivityWaiting("confirm") {
		t.Errorf("activity %s", st.Activity)
	}
	run(t, s, "sudo caisson-agent confirm")
	if st := status(t, s); st.Trial != nil || st.Health != spec.HealthOK {
		t.Errorf("confirmed: health %s, trial %+v", st.Health, st.Trial)
	}
	expect(t, s, "23")

	f.ratio(t, "23", "24", "--confirm", "10s")
	ask(t, s)
	undone(t, s, "23", "nobody confirmed it within 10 s")

	// The end of the agent does not end the time.
	f.ratio(t, "24", "25", "--confirm", "60s")
	ask(t, s)
	expect(t, s, "25")
	run(t, s, "sudo systemctl kill --signal=KILL caisson-agent.service")
	undone(t, s, "23", "nobody confirmed it within 60 s")
	run(t, s, "systemctl is-active caisson-agent.service")

	// A boot does.
	f.ratio(t, "25", "26", "--confirm", "10m")
	ask(t, s)
	expect(t, s, "26")
	s = f.reboot(t, m, s)
	undone(t, s, "23", "the machine was started over")

	// The kernel's own end of the only link, and nobody there to mend it.
	f.edit(t, "  sysctl:\n", noLink+"  sysctl:\n")
	f.ratio(t, "26", "27")
	run(t, s, "sudo systemd-run --collect caisson-agent sync")
	undone(t, s, "23", "the registry was not reached")
	f.edit(t, noLink, "")
	f.ratio(t, "27", "28")
	ask(t, s)
	if st := status(t, s); st.Health != spec.HealthOK || st.Trial != nil {
		t.Errorf("the next generation: health %s (%s), trial %+v", st.Health, st.HealthDetail, st.Trial)
	}
	expect(t, s, "28")
}
