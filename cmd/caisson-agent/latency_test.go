// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// settings is how many settings of each kind are changed, and turns how often each:
// as often as the service corrects one within ten minutes.
const settings, turns = 4, 5

// rests is how many times the time of an early look the service keeps the next one waiting.
const rests = 19

// handsFor is about how long hands are busy; a loaded machine then has fewer changes.
const handsFor = 4 * time.Minute

// deed is one thing that a hand changes on a node.
type deed struct {
	change func() error
	kept   func() bool // it is as the site wants it
}

// hands is the table of kinds: what is changed of setting i, or why nothing is.
var hands = map[string]struct {
	deed   func(i int) deed
	silent string
}{
	"sysctl": {deed: func(i int) deed { return text("/proc/sys/net/ipv4/conf/c"+fmt.Sprint(i)+"/accept_redirects", "1\n") }},
	"sysfs":  {deed: func(i int) deed { return text("/sys/class/net/c"+fmt.Sprint(i)+"/tx_queue_len", "500\n") }},
	"files":  {deed: func(i int) deed { return text(fmt.Sprintf("/etc/latency-%d.conf", i), "by hand\n") }},
	"limits": {deed: func(i int) deed {
		return text(fmt.Sprintf("/etc/security/limits.d/60-caisson-l%d.conf", i), "by hand\n")
	}},
	"units": {deed: func(i int) deed { return text(fmt.Sprintf("/etc/systemd/system/latency-%d.service", i), "by hand\n") }},
	"modules": {deed: func(i int) deed {
		return text([]string{"/etc/modules-load.d/60-caisson-modules.conf", "/etc/modprobe.d/zz-caisson-modules.conf"}[i%2], "# by hand\n")
	}},
	"perm": {deed: func(i int) deed {
		name := fmt.Sprintf("/srv/perm-%d", i)
		return deed{func() error { return os.Chmod(name, 0o666) }, func() bool { info, err := os.Stat(name); return err == nil && info.Mode().Perm() == 0o640 }}
	}},
	"mounts": {deed: func(i int) deed { return mounted(fmt.Sprintf("/srv/mount-%d", i)) }},
	"swaps": {deed: func(i int) deed {
		name := filepath.Join(os.Getenv("SWAP"), fmt.Sprintf("swap-%d", i))
		return deed{func() error { return swapoff(name) }, func() bool { return listed("/proc/swaps", name) }}
	}},
	"ethtool": {deed: func(i int) deed {
		gro := func(command, value uint32) (uint32, error) {
			v := struct{ command, value uint32 }{command, value}
			err := netif.Ethtool(fmt.Sprint("c", i), unsafe.Pointer(&v))
			return v.value, err
		}
		return deed{func() error { _, err := gro(unix.ETHTOOL_SGRO, 1); return err }, func() bool { v, err := gro(unix.ETHTOOL_GGRO, 1); return err == nil && v == 0 }}
	}},
	"nics": {deed: func(i int) deed {
		type channels struct{ command, maxRx, maxTx, maxOther, maxCombined, rx, tx, other, combined uint32 }
		do := func(v *channels) error { return netif.Ethtool(fmt.Sprint("c", i), unsafe.Pointer(v)) }
		return deed{func() error { return do(&channels{command: unix.ETHTOOL_SCHANNELS, rx: 1, tx: 1}) }, func() bool {
			v := channels{command: unix.ETHTOOL_GCHANNELS}
			return do(&v) == nil && v.rx == 2 && v.tx == 2
		}}
	}},
	"service": {deed: func(int) deed { return mounted("/etc/latency") }},
	"exec":    {silent: "a script runs when it is due"},

	"passwords": {silent: "an attached host keeps its accounts; its hints are those of a file"},
}

// text is a file, or an attribute of the kernel.
func text(name, other string) deed {
	want, err := os.ReadFile(name)
	return deed{func() error {
		if err != nil {
			return err
		}
		return os.WriteFile(name, []byte(other), 0o644)
	}, func() bool {
		now, err := os.ReadFile(name)
		return err == nil && string(now) == string(want)
	}}
}

func mounted(at string) deed {
	return deed{func() error { return unix.Unmount(at, unix.MNT_DETACH) }, func() bool { return listed("/proc/self/mountinfo", at) }}
}

func listed(file, name string) bool {
	data, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(data)), name)
}

func swapoff(name string) error {
	path, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(path)), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// latency is how long one change was there, in milliseconds.
type latency struct{ Detected, Repaired float64 }

// changeByHand changes what each kind keeps, beside a running service, and prints
// how long it took until the service had found it, which is when it counts the
// correction, and until it was as wanted again.
func changeByHand() (map[string][]latency, error) {
	counted := func() time.Time {
		info, err := os.Stat(filepath.Join(paths.State, "corrections.json"))
		if err != nil {
			return time.Time{} // nothing was corrected yet
		}
		return info.ModTime()
	}
	found := map[string][]latency{}
	deeds := map[string][]deed{}
	for kind, h := range hands {
		for i := 0; h.deed != nil && i < settings; i++ {
			deeds[kind] = append(deeds[kind], h.deed(i))
		}
	}
	for turn, start := 0, time.Now(); turn < settings*turns && (turn < turns || time.Since(start) < handsFor); turn++ {
		for kind := range deeds {
			if kind == "service" && turn >= turns || kind == "modules" && turn >= 2*turns {
				continue // it has fewer settings
			}
			d := deeds[kind][turn%settings]
			if kind == "service" || kind == "modules" {
				d = deeds[kind][turn%2]
			}
			before := counted()
			began := time.Now()
			if err := d.change(); err != nil {
				return nil, fmt.Errorf("change %s by hand: %w", kind, err)
			}
			l := latency{}
			for since := time.Duration(0); l.Repaired == 0; since = time.Since(began) {
				if since > 3*time.Minute {
					return nil, fmt.Errorf("%s: setting %d is not repaired", kind, turn%settings)
				}
				if ms := since.Seconds() * 1000; d.kept() {
					l.Repaired = ms
				} else if l.Detected == 0 && counted() != before {
					l.Detected = ms
				}
				time.Sleep(200 * time.Microsecond)
			}
			if l.Detected == 0 {
				l.Detected = l.Repaired // both between two looks of ours
			}
			found[kind] = append(found[kind], l)
			time.Sleep(min(max(time.Second, rests*time.Since(began)), 5*time.Second)) // the next early look is kept waiting
		}
	}
	return found, nil
}

// latencyHost is a host whose service keeps something of each kind.
const latencyHost = ownHost + `
umount -R -l /sys
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
git config --global user.name Ann
git config --global user.email ann@example.org
git init -q --initial-branch=main conf
mkdir conf/etc
echo 1 >conf/etc/conf
git -C conf add .
git -C conf commit -q -m one
mkdir -p /etc/latency
echo package >/etc/latency/conf
cat >site.yaml <<-END
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal-a}
registry: oci:out
attached: true
nodes: [{name: superhost}]
conf:
  modules: {load: [loop], parameters: {dummy: {numdummies: 1}}}
  exec: {once: {data: "#!/bin/sh\ntrue", rerun_policy: never}}
  limits:
$(for i in 0 1 2 3; do echo "    l$i: {domain: user$i, type: hard, item: nofile, value: 65536}"; done)
  files:
$(for i in 0 1 2 3; do echo "    f$i: {path: /etc/latency-$i.conf, content: words}"; done)
  sysctl:
$(for i in 0 1 2 3; do echo "    net/ipv4/conf/c$i/accept_redirects: 0"; done)
  sysfs:
$(for i in 0 1 2 3; do echo "    /sys/class/net/c$i/tx_queue_len: 700"; done)
  ethtool:
$(for i in 0 1 2 3; do echo "    c$i: {gro: off}"; done)
  nics:
$(for i in 0 1 2 3; do echo "    c$i: {match: {name: c$i}, channels: {rx: 2, tx: 2}}"; done)
  units:
$(for i in 0 1 2 3; do echo "    latency-$i.service: {content: \"[Service]\\\\nExecStart=/bin/true\\\\n\"}"; done)
  perm:
    paths:
$(for i in 0 1 2 3; do echo "    - {path: /srv/perm-$i, permissions: '0640'}"; done)
    rerun_policy: always
  mounts:
$(for i in 0 1 2 3; do echo "    m$i: {mnt_tgt: /srv/mount-$i, device: tmpfs, type: tmpfs, options: size=1m}"; done)
$(for i in 0 1 2 3; do echo "    s$i: {mnt_tgt: none, device: $SWAP/swap-$i, type: swap}"; done)
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: latency}
spec:
  git: {url: "file:///mnt/conf", branch: main}
  directories: [{from: etc, to: /etc/latency}]
END
for i in 0 1 2 3; do
	touch /srv/perm-$i
	ip link add c$i numrxqueues 4 numtxqueues 4 type veth peer name d$i numrxqueues 4 numtxqueues 4
	dd if=/dev/zero of=$SWAP/swap-$i bs=64k count=1 status=none
	chmod 0600 $SWAP/swap-$i
	mkswap -q $SWAP/swap-$i
done
caisson services update --cache cache
caisson publish site.yaml --to oci:out --key keys/operator.key --cache cache
caisson serve oci:out --listen 127.0.0.1:5001 2>serve.log &
serve=$!
await caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub
caisson-agent apply
caisson-agent run 2>run.log &
run=$!
await watches
caisson-agent status >&2
sleep 3
set +x
"$HAND" || { cat run.log; caisson-agent status; false; }
kill $run
wait $run
caisson-agent restore --all
kill $serve
`

// BenchmarkLatency has a hand change what each kind keeps, and says how long it took
// until the service had found it and until it was as wanted, through all that runs on
// a node: the watch, the look, the journal. The goal is 50 ms to find it where the
// kernel tells of it; without a word, the look of each minute finds it.
func BenchmarkLatency(b *testing.B) {
	require.Root(b)
	require.Tool(b, "ip", "git", "mkswap", "mksquashfs")
	for _, i := range items.Table(spec.Items{}, items.Options{}) {
		if _, ok := hands[i.Name()]; !ok {
			b.Errorf("kind %s: what a hand changes of it is not in the table", i.Name())
		}
	}
	hand, err := exec.LookPath("change-by-hand") // see TestMain
	if err != nil {
		b.Fatal(err)
	}
	swap := b.TempDir()
	b.Cleanup(func() {
		for i := range settings {
			_ = swapoff(filepath.Join(swap, fmt.Sprintf("swap-%d", i))) // used when the script failed
		}
	})
	out := inNamespaces(b, latencyHost, "HAND="+hand, "SWAP="+swap)
	_, after, _ := strings.Cut(out, "found: ")
	line, _, _ := strings.Cut(after, "\n")
	found := map[string][]latency{}
	if err := json.Unmarshal([]byte(line), &found); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, item := range items.Table(spec.Items{}, items.Options{}) {
		b.Run(item.Name(), func(b *testing.B) {
			if why := hands[item.Name()].silent; why != "" {
				b.Skip(why)
			}
			for range b.N { // the script has done it
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(found[item.Name()])), "changes")
			for name, of := range map[string]func(latency) float64{"found": func(l latency) float64 { return l.Detected }, "repaired": func(l latency) float64 { return l.Repaired }} {
				var all []float64
				for _, l := range found[item.Name()] {
					all = append(all, of(l))
				}
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], name+"-p50-ms")
				b.ReportMetric(all[len(all)*99/100], name+"-p99-ms")
			}
		})
	}
}
