// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// serviceHost is a host of its own whose service is the one that systemd starts by the
// unit, with all that confines it. A system call that the unit denies ends it here, where
// on a node it only fails: nobody can take no notice of that.
const serviceHost = `
for at in /etc /srv; do
	mkdir -p /run/up$at /run/work$at
	mount -t overlay overlay -o lowerdir=$at,upperdir=/run/up$at,workdir=/run/work$at $at
done
mkdir /run/cgroup
mount --bind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys # with the NICs of this namespace
mount --bind /run/cgroup /sys/fs/cgroup
rm -rf /etc/caisson /var/divingbell*
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
hostname superhost
ip link set lo up
mount --bind /run/units /etc/systemd/system # where this systemd looks
not() { if "$@"; then return 1; fi; }
await() { end=$(($(date +%s)+300)); until "$@" >/dev/null 2>&1; do test $(date +%s) -lt $end || { echo "never: $*"; exit 5; }; sleep 0.2; done; }
mkdir -p /run/units/caisson-agent.service.d /run/site
sed "s|^ExecStart=.*|ExecStart=$(command -v caisson-agent) run|" unit >/run/units/caisson-agent.service
printf '[Service]\nSystemCallErrorNumber=\nRestart=no\nStandardError=append:/run/journal\n' >/run/units/caisson-agent.service.d/test.conf
cd /run/site
caisson init .
`

const confined = serviceHost + `
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	machine: {agent: {metrics: {listen: "127.0.0.1:9977", file: /srv/collector/caisson.prom}, report: {url: "http://127.0.0.1:8080", interval: 10s}}}
	health:
	  - {name: way, tcp: "127.0.0.1:5001", interval: 1s}
	  - {name: answer, http: "http://127.0.0.1:5001/v2/", interval: 1s}
	  - {name: file, file: /etc/caisson-test/file, interval: 1s}
	  - {name: unit, unit: asleep.service, interval: 1s}
	  - {name: command, command: [/usr/bin/test, -e, /srv/well], interval: 1s, retries: 1}
	conf:
	  sysctl: {net.ipv4.conf.lo.forwarding: $1}
	  sysfs: {/sys/class/net/lo/tx_queue_len: 777}
	  ethtool: {eth0: {gso: off}}
	  nics: {card: {match: {mac: "52:54:00:00:01:01"}, features: {gro: on}}}
	  limits: {core: {domain: "*", type: hard, item: core, value: 0}}
	  files: {/etc/caisson-test/file: {content: "$1", owner: games, mode: "0640"}}
	  mounts: {here: {mnt_tgt: /srv/made/here, device: tmpfs, type: tmpfs, options: "size=1m,noexec"}}
	  perm: {paths: [{path: /srv/tool, owner: games, group: games, permissions: "4755"}]}
	  exec:
	    first: {data: "#!/bin/sh\necho \$0 >>/srv/ran\n", rerun_policy: never}
	    beside: {data: "#!/bin/sh\necho \$0 >>/srv/beside\n", rerun_policy: never, blocking_policy: background}
	  units:
	    asleep.service: {content: "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sleep 86399\n", run: started, limits: {nofile: 4321}}
	---
	apiVersion: caisson.dev/v1alpha1
	kind: NodeMaintenance
	metadata: {name: over}
	spec:
	  when: [{file: /srv/well}, {unit: asleep.service}, {command: {argv: [/bin/true], timeout: 1m}}]
	  slot: {group: g, max: 1, directory: /srv/slots}
	  windows: [always]
	  drain: {check: {argv: [/bin/false], timeout: 1m}, exec: {argv: [/usr/bin/touch, /srv/drained], timeout: 1m}, undo: {argv: [/bin/rm, /srv/drained], timeout: 1m}}
	  operations:
	    - {name: once, type: oneShot, disruptive: true, check: {argv: [/usr/bin/test, -e, /srv/once], timeout: 1m}, exec: {argv: [/usr/bin/touch, /srv/once], timeout: 1m}}
	    - {name: dirty, type: realtime, conf: {sysctl: {net.ipv4.conf.lo.log_martians: "1"}}}
	---
	apiVersion: caisson.dev/v1alpha1
	kind: NodeMaintenance
	metadata: {name: scheduled}
	spec:
	  operations: [{name: daily, type: cron, schedule: {weekly: [mon, tue, wed, thu, fri, sat, sun], at: ["00:00", "06:00", "12:00", "18:00"], timeZone: UTC, catchUp: true}, exec: {argv: [/usr/bin/touch, /srv/daily], timeout: 1m}}]
	---
	apiVersion: caisson.dev/v1alpha1
	kind: NodeService
	metadata: {name: monitor}
	spec:
	  git: {url: "file:///run/site/conf.git", branch: main}
	  user: games
	  package: none-such-package
	  directories: [{from: etc, to: /etc/monitor}]
	END
	caisson validate site.yaml
	caisson services update --cache cache
	caisson publish site.yaml --to oci:out --key keys/operator.key --cache cache
}
export GIT_CONFIG_GLOBAL=/run/site/gitconfig
git config --global user.name Ann
git config --global user.email ann@example.org
git init -q --bare --initial-branch=main conf.git
git init -q work
git -C work remote add origin /run/site/conf.git
git -C work checkout -q -b main
mkdir -p work/etc /srv/slots /srv/collector
echo one >work/etc/conf
git -C work add .
git -C work commit -q -m one
git -C work push -q origin main
touch /srv/tool /srv/well
ip link add eth0 address 52:54:00:00:01:01 type veth peer name eth1
site 1
caisson serve oci:out --listen 127.0.0.1:5001 >/run/registry 2>&1 &
serve=$!
await caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub

# As after a boot: nothing of the agent's is in /run.
rm -rf /run/caisson
systemctl daemon-reload
trap 'test $? = 0 || { set +e; cat /run/journal; systemctl status caisson-agent.service; caisson-agent status; caisson-agent why; }; kill $serve' EXIT
systemctl start caisson-agent.service
ok() { caisson-agent status >status; grep '^health *ok' status && not grep '^activity *\(soaking\|waiting:gates\)' status; }
await ok
await sh -c "caisson-agent operation list | grep 'over/once *done'"
test -e /srv/once
await test ! -e /srv/drained
test "$(cat /sys/class/net/lo/tx_queue_len)" = 777
test "$(cat /etc/monitor/conf)" = one
test "$(stat -c '%a %U' /srv/tool)" = '4755 games'

# Metrics are for everybody.
everybody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@" >/dev/null; }
everybody cat /run/caisson/metrics.prom
everybody cat /srv/collector/caisson.prom

# What it makes has the modes that it has by a verb.
modes() { find /etc/caisson-test /etc/security/limits.d /srv /run/caisson /run/units /etc/monitor /run/reboot* /var/lib/caisson -printf '%m %u:%g %y %p\n' | grep -v /run/caisson/gates | sort -k4; }
systemctl stop caisson-agent.service
modes >by-service
caisson-agent restore --all
rm -rf /run/caisson
caisson-agent apply
modes >by-verb
diff by-service by-verb
`

// TestTheServiceByItsUnit has systemd start the service by its unit, with something of
// most that a site can say: all of it works, and leaves what a verb would leave.
func TestTheServiceByItsUnit(t *testing.T) {
	require.Tool(t, "ip", "systemctl", "setpriv", "git", "mksquashfs")
	prepare := func(dir string) {
		err := os.CopyFS(dir+"/bin", os.DirFS(programs(t)))
		if err != nil {
			t.Fatal(err)
		}
		unit, err := systemd.Units.ReadFile("caisson-agent.service")
		if err == nil {
			err = os.WriteFile(dir+"/unit", unit, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !itemtest.InSystemdWith(t, prepare) {
		return
	}
	cmd := exec.Command("sh", "-ec", confined)
	cmd.Dir = itemtest.Shared
	cmd.Env = []string{"PATH=" + itemtest.Shared + "/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/run/site"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // what it leaves behind does not hold a file open
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}
