// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"
)

// bootKinds is what a site asks for beyond the quickstart, of kinds that have to be
// there before PID 1 starts: an edit of the example.
var bootKinds = []string{"    kernel.panic: 30\n", `    kernel.panic: 30
    net.bridge.bridge-nf-call-iptables: 0
  sysfs:
    /sys/kernel/mm/transparent_hugepage/defrag: never
    /sys/class/net/lo/tx_queue_len: 777
  nics:
    card: {match: {driver: virtio_net}, link: {speed: 1000, duplex: full}}
  modules:
    load: [br_netfilter]
    parameters: {dummy: {numdummies: 2}}
    blacklist: [pcspkr]
  units:
    hello.service:
      content: |
        [Service]
        ExecStart=/bin/sleep infinity
        [Install]
        WantedBy=multi-user.target
      state: enabled
      run: started
      limits: {nofile: 4321}
    apt-daily.timer: {state: masked}
`}

// kinds looks at what bootKinds asks for, changes it on the running node, and takes
// the change back.
func (f *Fleet) kinds(t *testing.T, s *Session) {
	before := []Check{
		{"sysfs, of a list", "grep -o '\\[.*\\]' /sys/kernel/mm/transparent_hugepage/defrag", "[never]"},
		{"sysfs, by a link", "cat /sys/class/net/lo/tx_queue_len", "777"},
		{"speed of a card, by its driver", "/usr/sbin/ethtool eth0 | grep -o 'Speed: .*'", "Speed: 1000Mb/s"},
		{"module", "test -d /sys/module/br_netfilter && echo loaded", "loaded"},
		{"sysctl of that module", "cat /proc/sys/net/bridge/bridge-nf-call-iptables", "0"},
		{"blacklist", "/usr/sbin/modprobe -c | grep -x 'blacklist pcspkr'", "blacklist pcspkr"},
		{"unit, started by systemd", "systemctl is-enabled hello.service; systemctl is-active hello.service", "enabled\nactive"},
		{"started before the agent looked", "test $(systemctl show -P ActiveEnterTimestampMonotonic hello.service) -lt $(systemctl show -P ActiveEnterTimestampMonotonic caisson-agent.service) && echo before", "before"},
		{"no reload at boot", "systemctl show -P NeedDaemonReload hello.service", "no"},
		{"limit of a service", "grep 'Max open files' /proc/$(systemctl show -P MainPID hello.service)/limits | tr -s ' ' | cut -d' ' -f4", "4321"},
		{"masked", "systemctl is-enabled apt-daily.timer || true", "masked"},
		{"status", "sudo caisson-agent status", "~health      ok"},
	}
	look := func(checks ...Check) {
		t.Helper()
		for _, c := range checks {
			if _, err := c.Run(t.Context(), s); err != nil {
				t.Error(err)
			}
		}
	}
	look(before...)
	run(t, s, "sudo systemctl stop hello.service; echo 5 | sudo tee /sys/class/net/lo/tx_queue_len; sudo /usr/sbin/ethtool -s eth0 speed 100; sudo caisson-agent sync")
	look(before...)

	change := []string{"load: [br_netfilter]", "load: [br_netfilter, dummy]", "limits: {nofile: 4321}", "limits: {nofile: 4322}",
		"    apt-daily.timer: {state: masked}\n", "    apt-daily.timer: {state: masked}\n    again.service: {content: \"[Service]\\nExecStart=/bin/sleep infinity\\n\", run: started}\n"}
	for i := 0; i < len(change); i += 2 {
		f.edit(t, change[i], change[i+1])
	}
	f.publish(t)
	said := run(t, s, "sudo caisson-agent sync")
	look(Check{"module, live, with its parameter", "ls /sys/class/net | grep -c '^dummy[01]$'", "2"},
		Check{"unit, live", "systemctl is-active again.service", "active"},
		Check{"the service runs with the old limit", "grep 'Max open files' /proc/$(systemctl show -P MainPID hello.service)/limits | tr -s ' ' | cut -d' ' -f4", "4321"})
	if out := run(t, s, "sudo caisson-agent status"); !strings.Contains(out, "old settings until it is restarted") {
		t.Errorf("status does not name the service with the old limit:\n%s\n%s", said, out)
	}
	for i := 0; i < len(change); i += 2 {
		f.edit(t, change[i+1], change[i])
	}
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	look(Check{"a unit that left", "ls /etc/systemd/system/again.service 2>&1 || true; systemctl is-active again.service || true", "~No such file"})
	run(t, s, "sudo systemctl restart hello.service") // its file was written again
	look(before...)
}
