// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// opens is an example with a window, and what makes its first node a machine of a test: a way in, a
// card, a network, the service that counts slots, and a window that opened at a time, in place of
// the example's own: the service knows what time it is, and refuses a node of another.
type opens struct {
	example, node, slots string
	edits                func(key ssh.PublicKey, opened time.Time) []string
}

// theMachine has a node ask the switch for names, and report to the service.
const theMachine = `machine:
  network: {dns: [10.0.2.200]}
  agent: {poll: 1m, report: {url: "http://` + guestFleet + `", interval: 10s}}
`

func weekly(key ssh.PublicKey, opened time.Time) []string {
	return []string{
		"metadata: {name: weekly}\nlayer: {base: {debian: {suite: trixie}}}\n", `metadata: {name: weekly}
registry: oci:./out
layer:
  base: {debian: {suite: trixie}}
  kernel: {package: linux-image-cloud-amd64, args: [no_timer_check, systemd.mask=user@.service, console=ttyS0, net.ifnames=0]}
conf:
  apt:
    packages:
      - name: tree
  uamlite:
    users:
      - user_name: admin
        user_sudo: true
        user_sshkeys:
          - ` + string(ssh.MarshalAuthorizedKey(key)) + `
` + theMachine,
		"{name: web-1, labels: {role: web}}", `{name: web-1, labels: {role: web}, match: {macs: ["52:54:00:00:00:0a"]}}`,
		"https://lock.example:3333", "http://" + guestFleet,
		`{weekly: [mon], at: "04:00"}`, openToday(opened),
		"from: 2026-12-21, to: 2027-01-03", "from: 2025-12-21, to: 2026-01-03",
	}
}

// kubernetes leaves the kubelet away, which Debian does not have.
func kubernetes(_ ssh.PublicKey, opened time.Time) []string {
	return []string{
		"registry: registry.example.org:5000/metal-a\n", "registry: oci:./out\n",
		"args: [console=ttyS0", "args: [no_timer_check, systemd.mask=user@.service, console=ttyS0",
		"52:54:00:00:21:01", "52:54:00:00:00:0a",
		"  - {name: kubelet, http: \"http://127.0.0.1:10248/healthz\"}\n", "",
		"machine:\n  agent: {report: {url: \"https://fleet.example.org:8443\"}}\n", theMachine,
		"fleetlock: \"https://fleet.example.org:8443\"", "fleetlock: \"http://" + guestFleet + "\"",
		"      - name: kubelet\n", "      - name: tree\n",
		`{weekly: [mon, tue, wed, thu], at: "22:00"}`, openToday(opened),
	}
}

func openToday(at time.Time) string {
	return strings.ToLower(at.Format(`{weekly: [Mon], at: "15:04"}`))
}

// An example's machine has a clock that stands in 2020, and that nobody sets but its time service: the
// window of the site opens, and the node enters the layer that waits. With another time service, and the
// servers that the site names, the clock is right, too.
func TestLongWindowOpens(t *testing.T) {
	require.Long(t)
	for _, o := range []opens{
		{"weekly", "web-1", "web=1", weekly},
		{"kubernetes", "node-1", "workers=1", kubernetes},
	} {
		t.Run(o.example, func(t *testing.T) {
			needs(t)
			o.walk(t)
		})
	}
}

// Where no time server answers, no window opens, though the clock is right: the node stays in its
// layer, and says why.
func TestLongWindowStaysShut(t *testing.T) {
	require.Long(t)
	needs(t)
	f, m := opens{"weekly", "web-1", "web=1", weekly}.starts(t, &netSwitch{})
	s := f.login(t, m)
	before := status(t, s)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: jq\n")
	f.build(t)
	f.publish(t)
	const why = "the clock is not synchronised: no time that systemd-timesyncd.service accepts came from its servers"
	stands(t, s, spec.LayerSwapName, spec.OperationWaiting, spec.ForClock, why)
	if said := run(t, s, "sudo caisson-agent status || [ $? -eq 3 ]"); !strings.Contains(said, why) {
		t.Errorf("status says %s", said)
	}
	if st := status(t, s); st.Layer != before.Layer || st.Activity != spec.ActivityWaiting(spec.ForClock) {
		t.Errorf("it runs layer %s, %s before, and does %s", st.Layer, before.Layer, st.Activity)
	}
	shown := ""
	if !becomes(m.Console, func() bool {
		shown, _ = f.Caisson(t.Context(), "fleet", "status", "web-1", "--at", "http://"+f.page, "--token-file", "token") // exit code 3 where a node needs attention
		return strings.Contains(shown, why)
	}) {
		t.Errorf("the service says %s", shown)
	}
}

// starts boots the example's machine beside a switch.
func (o opens) starts(t *testing.T, server *netSwitch, more ...string) (*daily, *machine.Machine) {
	t.Helper()
	f := &daily{Fleet: example(t, programs(t), "../../examples/"+o.example+"/site.yaml")}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Now().In(berlin).Add(-10 * time.Minute)
	f.edits(t, o.edits(f.Key.PublicKey(), opened)...)
	f.cuts(t, "    repositories:\n", "  uamlite:\n")
	f.cuts(t, "  units:\n    kubelet.service:\n", "---\n")
	f.raise(t)
	f.serveFleet(t, "--slot", o.slots, "--unproven-slots")
	f.alpha = f.byHand(t, f.withDisk(t))
	f.alpha.Name, f.alpha.Cables = o.node, startSwitch(t, 1, server).cables
	f.alpha.Forwards[guestFleet] = f.page
	f.alpha.Extra = append(f.alpha.Extra, more...)
	return f, f.start(t, f.alpha)
}

func (o opens) walk(t *testing.T) {
	f, m := o.starts(t, &netSwitch{time: time.Now}, "-rtc", "base=2020-01-01T00:00:00")
	s := f.login(t, m)
	isRight(t, s)
	before := status(t, s)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: chrony\n")
	f.edit(t, "{dns: [10.0.2.200]}", "{dns: [10.0.2.200], ntp: [10.0.2.200]}")
	f.build(t)
	from := m.Console.Len()
	f.publish(t)
	waitFor(t, m, from, "Soft-rebooting", "caisson: entering the layer")
	waitFor(t, m, from, "login:")
	s = f.login(t, m)
	var st spec.Status
	if !becomes(s.Console, func() bool { st = status(t, s); return st.Layer != before.Layer && len(st.Operations) == 0 }) {
		t.Fatalf("the swap is not over: %+v", st)
	}
	if st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent {
		t.Errorf("in the other layer: %+v", st)
	}
	if got := run(t, s, "chronyc -n sources | grep -o '10[.]0[.]2[.]200'; systemctl is-enabled systemd-timesyncd 2>&1 || true; grep -c ^pool /etc/chrony/chrony.conf || true"); got != "10.0.2.200\nnot-found\n0" {
		t.Errorf("chrony asks, timesyncd is, pools: %q", got)
	}
	isRight(t, s)
}

// cuts takes out of the site what stands from a text to another one, if it is there.
func (f *Fleet) cuts(t *testing.T, from, to string) {
	t.Helper()
	before, rest, found := strings.Cut(f.reads(t, "site.yaml"), from)
	if _, after, ends := strings.Cut(rest, to); found && ends {
		f.writes(t, "site.yaml", before+to+after)
	}
}

// isRight waits until a node's clock is as ours, which the switch tells, and counts as synchronised.
func isRight(t *testing.T, s *machine.Session) {
	t.Helper()
	var said string
	if !becomes(s.Console, func() bool {
		said = run(t, s, "timedatectl show -P NTPSynchronized; date +%s")
		yes, seconds, _ := strings.Cut(said, "\n")
		at, err := strconv.ParseInt(seconds, 10, 64)
		return yes == "yes" && err == nil && time.Since(time.Unix(at, 0)).Abs() < time.Minute
	}) {
		t.Fatalf("the clock is %q, ours %s", said, time.Now().UTC())
	}
}

// serveTime answers two questions of a time service, and reports whether a frame was one:
// by DNS (RFC 1035) any name is the switch itself, which tells the time by SNTP (RFC 4330).
func (s *netSwitch) serveTime(from int, frame []byte) bool {
	const header = 14 + 20 + 8
	if s.time == nil || machine.TypeOf(frame) != machine.TypeIPv4 || len(frame) < header+12 || frame[14] != 0x45 || frame[23] != 17 {
		return false
	}
	udp := frame[34 : 34+min(len(frame)-34, int(binary.BigEndian.Uint16(frame[38:])))]
	var answer []byte
	switch port := binary.BigEndian.Uint16(udp[2:]); {
	case port == 53:
		answer = name(udp[8:])
	case port == 123 && len(udp) >= 8+48 && string(frame[30:34]) == string(ownIP[:]):
		answer = s.tell(udp[8:])
	}
	if answer == nil {
		return false
	}
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(answer)))
	ip = append(append(ip, frame[30:34]...), frame[26:30]...)
	binary.BigEndian.PutUint16(ip[10:], sum(ip))
	head := append(append(append([]byte{}, udp[2:4]...), udp[0:2]...), 0, 0, 0, 0) // without a checksum
	binary.BigEndian.PutUint16(head[4:], uint16(8+len(answer)))
	out := append(append([]byte{}, frame[6:12]...), frame[0:6]...)
	out = append(append(append(out, machine.TypeIPv4>>8, machine.TypeIPv4&255), ip...), head...)
	s.Send(from, append(out, answer...))
	return true
}

// name answers one question by DNS: with the switch's address where that is what is asked for,
// else with nothing.
func name(question []byte) []byte {
	end := 12
	for end < len(question) && question[end] != 0 {
		end += 1 + int(question[end])
	}
	if end += 5; end > len(question) || question[2]&0x80 != 0 {
		return nil
	}
	out := append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[12:end]...)
	if binary.BigEndian.Uint16(question[end-4:]) == 1 {
		out[7] = 1
		out = append(append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4), ownIP[:]...)
	}
	return out
}

// tell answers a question by SNTP.
func (s *netSwitch) tell(question []byte) []byte {
	const era = 2208988800 // seconds from 1900 to 1970
	now := s.time()
	stamp := binary.BigEndian.AppendUint32(nil, uint32(now.Unix()+era))
	stamp = binary.BigEndian.AppendUint32(stamp, uint32(uint64(now.Nanosecond())<<32/1e9))
	out := []byte{question[0]&0x38 | 4, 2, question[2], 0xec, 0, 0, 0, 1, 0, 0, 0, 1, ownIP[0], ownIP[1], ownIP[2], ownIP[3]}
	out = append(append(out, stamp...), question[40:48]...)
	return append(append(out, stamp...), stamp...)
}
