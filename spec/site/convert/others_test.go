// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
)

// others are files of other configurators and of hosts, each with the kind that it is taken
// for, what it becomes, and why a line is not taken as it is, in order.
var others = []struct {
	name, kind, text, parts string
	why                     []string // "LINE: " and how the reason begins
}{
	{"worker.yaml", "machineconfig", "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 99-worker\n  labels: {machineconfiguration.openshift.io/role: worker}\nspec:\n" +
		"  kernelArguments: [nosmt, 'a b']\n  kernelType: realtime\n  fips: true\n  config:\n    ignition: {version: 3.4.0}\n    storage: {files: [{path: /etc/a, contents: {source: 'data:,x'}}]}\n" +
		"    kernelArguments: {shouldExist: [hugepages=4], shouldNotExist: [quiet]}\n---\nkind: MachineConfigPool\n",
		`{"conf":{"files":{"/etc/a":{"content":"x"}}},"machine":{"kernel":{"args":["nosmt","hugepages=4"]}}}`,
		[]string{"15: one is read of a file", "5: a site says which nodes", "7: a site refuses it", "13: a kernel has the arguments of the site", "8: write layer.kernel.package", "9: a layer has Debian's"}},
	{"01.json", "machineconfig", "{\n \"kind\": \"MachineConfig\",\n \"spec\": {\"config\": {\"ignition\": {\"version\": \"3.2.0\"}, \"systemd\": {\"units\": [{\"name\": \"a.service\", \"mask\": true}]}}}}\n",
		`{"conf":{"units":{"a.service":{"state":"masked"}}}}`, nil},
	{"99.bu", "butane", "variant: openshift\nversion: 4.14.0\nmetadata: {name: x, labels: {role: worker}}\nopenshift: {kernel_arguments: [nosmt], fips: true}\n",
		`{"machine":{"kernel":{"args":["nosmt"]}}}`, []string{"4: a layer has Debian's", "3: a site says which nodes"}},

	{"01-netcfg.yaml", "netplan", "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n    a: {match: {macaddress: '52:54:00:00:00:01'}, set-name: lan0}\n    b: {match: {macaddress: '52:54:00:00:00:02'}}\n" +
		"    eth9: {dhcp4: true, dhcp6: yes, mtu: 9000, optional: true}\n    c: {match: {name: 'en*'}, dhcp4: true}\n    d: {match: {driver: virtio}, dhcp4: true}\n  bonds:\n" +
		"    bond0:\n      interfaces: [a, b]\n      parameters: {mode: 802.3ad, lacp-rate: fast, mii-monitor-interval: 100, transmit-hash-policy: layer3+4}\n    bond1: {interfaces: [eth8]}\n" +
		"  vlans:\n    bond0.7:\n      id: 7\n      link: bond0\n      addresses: [192.0.2.7/24, {'192.0.2.8/24': {label: x}}]\n      nameservers: {addresses: [192.0.2.53], search: [example.org]}\n" +
		"      routes: [{to: default, via: 192.0.2.1}, {to: 198.51.100.0/24, via: 192.0.2.2, table: 7}, {to: 198.51.100.9, via: 192.0.2.3}, {to: 0.0.0.0/0, via: 192.0.2.4, metric: 500}]\n    gone: {id: 8, link: nothing}\n  bridges: {br0: {interfaces: [eth9]}}\n",
		`{"machine":{"network":{"dns":["192.0.2.53"],"interfaces":[{"bond":{"lacpRate":"fast","members":["52:54:00:00:00:01","52:54:00:00:00:02"],"mode":"802.3ad","transmitHashPolicy":"layer3+4"},"name":"bond0"},` +
			`{"dhcp":"both","mtu":"9000","name":"eth9","optional":true},{"addresses":["192.0.2.7/24"],"gateway":"192.0.2.1","name":"bond0.7","routes":[{"to":"198.51.100.9/32","via":"192.0.2.3"},{"metric":"500","to":"0.0.0.0/0","via":"192.0.2.4"}],"vlan":{"id":"7","on":"bond0"}}],"search":["example.org"]}}}`,
		[]string{"23: a site has cards", "13: a site looks at links", "14: a site finds members", "5: a card keeps the name", "8: a site names interfaces", "9: a site names interfaces", "19: an address of a site", "21: a route of a site has no such table", "22: a site refuses it"}},
	{"bond.yaml", "netplan", "network:\n  version: 2\n  ethernets: {a: {match: {macaddress: '52:54:00:00:00:01'}}}\n  bonds: {b: {interfaces: [a], dhcp4: true, parameters: {mode: active-backup, primary: a}}}\n",
		`{"machine":{"network":{"interfaces":[{"bond":{"members":["52:54:00:00:00:01"],"mode":"active-backup","primary":"52:54:00:00:00:01"},"dhcp":"ipv4","name":"b"}]}}}`, nil},
	{"network-config", "netplan", "version: 2\nethernets:\n  eth0: {addresses: [192.0.2.7/24], gateway4: 192.0.2.1, routes: [{via: 192.0.2.9}]}\n",
		`{"machine":{"network":{"interfaces":[{"addresses":["192.0.2.7/24"],"gateway":"192.0.2.1","name":"eth0"}]}}}`, []string{"3: it does not say where to"}},
	{"network-config", "netplan", "network:\n  version: 1\n  config: []\n", `{"conf":{}}`, []string{"3: it has no counterpart", "2: only version 2"}},

	{"controlplane.yaml", "talos", "version: v1alpha1\nmachine:\n  type: worker\n  sysctls: {net.core.somaxconn: '65535'}\n  sysfs: {devices.system.cpu.cpu0.cpufreq.scaling_governor: performance}\n" +
		"  kernel: {modules: [{name: br_netfilter, parameters: [nf=1, odd]}]}\n  install: {disk: /dev/sda, extraKernelArgs: [talos.x=1, -quiet]}\n" +
		"  network: {hostname: a, nameservers: [192.0.2.53]}\n  time: {servers: [ntp.example.org]}\ncluster: {clusterName: x}\n",
		`{"conf":{"modules":{"load":["br_netfilter"],"parameters":{"br_netfilter":{"nf":"1"}}},"sysctl":{"net.core.somaxconn":"65535"},` +
			`"sysfs":{"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":"performance"}},"machine":{"kernel":{"args":["talos.x=1"]},"network":{"dns":["192.0.2.53"],"ntp":["ntp.example.org"]}}}`,
		[]string{"10: a cluster's programs", "6: odd: write it", "7: it takes an argument away", "7: see layer.stateDisk", "8: a node's name", "3: write a label"}},

	{"tuned.conf", "tuned", "[main]\nsummary=x\ninclude=throughput\n[sysctl]\nvm.swappiness=10\nnet.core.rmem_max=>1\nkernel.x=${y}\n[more]\ntype=sysfs\n/sys/block/sda/queue/nr_requests=1\n/sys/c*=2\n" +
		"[vm]\ntransparent_hugepages=never\n[bootloader]\ncmdline_net=+nosmt isolcpus=1\ncmdline_no=-quiet\n[cpu]\ngovernor=performance\n[modules]\nkvm=nested=1\nloop=+r\n[off]\ntype=sysctl\nenabled=0\nvm.x=1\n",
		`{"conf":{"modules":{"load":["loop"],"parameters":{"kvm":{"nested":"1"}}},"sysctl":{"vm.swappiness":"10"},"sysfs":{"/sys/block/sda/queue/nr_requests":"1","/sys/kernel/mm/transparent_hugepage/enabled":"never"}},"machine":{"kernel":{"args":["nosmt","isolcpus=1"]}}}`,
		[]string{"3: import that profile", "6: it is a bound", "7: write what the variable", "11: a site has no patterns", "16: a kernel has the arguments", "18: [cpu] governor", "24: its section", "25: its section"}},

	{"lines.conf", "tuned", "[main]\nsummary=x\n  more\n[bootloader]\n cmdline_a=nosmt\n # why\n  quiet\n cmdline_b=isolcpus=1\n[vm]\ntransparent_hugepages=never\n vm.dirty_ratio=5\n[sysfs]\n/sys/a=1 \\\n/sys/b=2\n/sys/block/sda/queue/nr_requests=3\n[sysctl]\nkernel.sysrq=0\n",
		`{"conf":{"sysctl":{"kernel.sysrq":"0"},"sysfs":{"/sys/block/sda/queue/nr_requests":"3"}},"machine":{"kernel":{"args":["isolcpus=1"]}}}`,
		[]string{"5: a value of several lines", "7: a value of several lines", "10: a value of several lines", "11: a value of several lines", "13: a value of several lines", "14: a value of several lines"}},

	{"10-lan.network", "networkd", "[Match]\nMACAddress=52:54:00:00:00:01\n[Link]\nMTUBytes=9000\nARP=no\n[Network]\nDHCP=ipv6\nAddress=192.0.2.5/24\nGateway=192.0.2.1\nDNS=192.0.2.53 192.0.2.54\nVLAN=v7\n[Route]\nDestination=198.51.100.0/24\nGateway=192.0.2.9\n[Route]\nDestination=203.0.113.0/24\nTable=9\n",
		`{"machine":{"network":{"dns":["192.0.2.53","192.0.2.54"],"interfaces":[{"addresses":["192.0.2.5/24"],"dhcp":"ipv6","gateway":"192.0.2.1","mac":"52:54:00:00:00:01","mtu":"9000","routes":[{"to":"198.51.100.0/24","via":"192.0.2.9"}]}]}}}`,
		[]string{"5: it has no counterpart", "11: write an entry of network.interfaces with vlan:", "16: a route of a site has no Table", "17: a route of a site has no Table"}},
	{"c.yaml", "cloud-config", "#cloud-config\nwrite_files:\n- {path: /etc/netplan/a.yaml, content: \"network: {version: 2, ethernets: {eno1: {dhcp4: true, mtu: 9000}}}\"}\n",
		`{"machine":{"network":{"interfaces":[{"dhcp":"ipv4","mtu":"9000","name":"eno1"}]}}}`, nil},
	{"c.yaml", "cloud-config", "#cloud-config\nwrite_files:\n- {path: /etc/netplan/a.yaml, content: \"network: {version: 2, a: [{{ ip }}]}\"}\n- {path: /etc/a, content: b}\n",
		`{"conf":{"files":{"/etc/a":{"content":"b"}}}}`, []string{"3: c.yaml:/etc/netplan/a.yaml:1:28: a key must be plain text"}},
	{"eth.network", "networkd", "[Match]\nName=eth*\n[Network]\nDHCP=yes\n", `{"conf":{}}`, []string{"1: a site names interfaces"}},
	{"eth.network", "networkd", "[Match]\nName=eth0\n[Network]\nAddress=192.0.2.5\n", `{"conf":{}}`, []string{"2: a site refuses it", "4: a site refuses it"}},
	{"eth.network", "networkd", "[Match]\nName=eth0\n[Link]\nRequiredForOnline=no\n[Network]\nDHCP=yes\n",
		`{"machine":{"network":{"interfaces":[{"dhcp":"both","name":"eth0","optional":true}]}}}`, nil},
	{"eth.network", "networkd", "[Match]\nName=eth0\n[Link]\nRequiredForOnline=degraded\n[Network]\nDHCP=yes\n",
		`{"machine":{"network":{"interfaces":[{"dhcp":"both","name":"eth0"}]}}}`, []string{"4: a site says optional"}},
	{"eth.network", "networkd", "[Match]\nName=eth0\n[Network]\nDHCP=v4\nDHCP=both\nDHCP=ip4\nDNS=\n",
		`{"machine":{"network":{"interfaces":[{"dhcp":"both","name":"eth0"}]}}}`, []string{"6: it is neither yes", "7: it is empty"}},
	{"network-config", "netplan", "version: 2\nethernets:\n  eth0: {addresses: ['2001:db8::7/64'], dhcp4: true, nameservers: [192.0.2.53], routes: [{to: '::/0'}]}\n",
		`{"machine":{"network":{"interfaces":[{"addresses":["2001:db8::7/64"],"dhcp":"ipv4","name":"eth0","routes":[{"to":"::/0"}]}]}}}`, []string{"3: it is not a map"}},
	{"comments.conf", "tuned", "[main]\nsummary=x\n[sysctl]\nvm.swappiness=10 # why\n[bootloader]\ncmdline_x=+nosmt dyndbg=\"module x +p\" # more\n",
		`{"conf":{"sysctl":{"vm.swappiness":"10"}},"machine":{"kernel":{"args":["nosmt","dyndbg=\"module x +p\""]}}}`, nil},
	{"two.list", "sources", "deb https://apt.example.org trixie main\ndeb https://apt.example.org trixie contrib\n",
		`{"conf":{"apt":{"repositories":{"two":{"components":["main"],"distributions":["trixie"],"url":"https://apt.example.org"},"two-2":{"components":["contrib"],"distributions":["trixie"],"url":"https://apt.example.org"}}}}}`, nil},
	{"on.link", "link", "[Match]\nOriginalName=eth0\n[Link]\nDescription=a \\\nGenericReceiveOffload=no\n", `{"conf":{}}`, []string{"1: line 4 goes on in the next one: join them"}},
	{"on.network", "networkd", "[Match]\nName=eth0\n[Route]\nGateway=192.0.2.1\nGatewayOnLink=yes\n[Network]\nDHCP=yes\n",
		`{"machine":{"network":{"interfaces":[{"dhcp":"both","name":"eth0"}]}}}`, []string{"4: a route of a site has no GatewayOnLink beside DHCP", "5: a route of a site has no GatewayOnLink beside DHCP"}},
	{"on.yaml", "netplan", "network:\n  version: 2\n  ethernets:\n    a: {addresses: [192.0.2.5/32], routes: [{to: default, via: 192.0.2.1, on-link: true}]}\n    b: {dhcp4: true, routes: [{to: 10.0.0.0/8, via: 192.0.2.1, on-link: true}]}\n" +
		"    c: {dhcp4: true, addresses: [198.51.100.7/24, \"2001:db8::5/128\"], routes: [{to: default, via: \"2001:db8::1\", on-link: true}, {to: 10.0.0.0/8, via: 198.51.100.1, on-link: true}]}\n" +
		"    d: {dhcp4: true, dhcp6: true, routes: [{to: default, via: \"fe80::1\", on-link: true}, {to: 10.0.0.0/8, via: 192.0.2.1, on-link: false}, {to: 10.1.0.0/16, via: 192.0.2.1, on-link: odd}]}\n",
		`{"machine":{"network":{"interfaces":[{"addresses":["192.0.2.5/32"],"gateway":"192.0.2.1","name":"a"},{"dhcp":"ipv4","name":"b"},` +
			`{"addresses":["198.51.100.7/24","2001:db8::5/128"],"dhcp":"ipv4","gateway":"2001:db8::1","name":"c","routes":[{"to":"10.0.0.0/8","via":"198.51.100.1"}]},` +
			`{"dhcp":"both","gateway":"fe80::1","name":"d","routes":[{"to":"10.0.0.0/8","via":"192.0.2.1"}]}]}}}`,
		[]string{"5: a route of a site has no on-link beside DHCP", "7: a route of a site has no on-link=odd"}},
	{"on.network", "networkd", "[Match]\nName=eth0\n[Link]\nARP=no \\\nMTUBytes=9000\n[Network]\nDHCP=yes\n", `{"conf":{}}`, []string{"1: line 4 goes on in the next one: join them"}},
	{"br0.netdev", "networkd", "[NetDev]\nName=br0\nKind=bridge\n", `{"conf":{}}`, []string{"1: other files say the rest"}},

	{"vendor.sources", "sources", "# ours\nTypes: deb deb-src\nURIs: https://apt.example.org\nSuites: stable\nComponents: main\nArchitectures: amd64\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEZ\n -----END PGP PUBLIC KEY BLOCK-----\n\n" +
		"Types: deb\nEnabled: no\nURIs: https://b.example.org\nSuites: stable\nComponents: main\n",
		`{"conf":{"apt":{"repositories":{"vendor":{"components":["main"],"distributions":["stable"],"gpgkey":"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ\n-----END PGP PUBLIC KEY BLOCK-----","url":"https://apt.example.org"}}}}}`,
		[]string{"2: taken without sources of packages; without architectures amd64", "13: it is switched off"}},
	{"docker.list", "sources", "deb [arch=amd64 trusted=yes signed-by=/etc/apt/keyrings/d.asc] https://apt.example.org trixie stable\ndeb-src https://apt.example.org trixie stable\ndeb https://flat.example.org ./\ndeb x\n",
		`{"conf":{"apt":{"repositories":{"docker":{"components":["stable"],"distributions":["trixie"],"url":"https://apt.example.org"},"docker-2":{"distributions":["./"],"url":"https://flat.example.org"}}}}}`,
		[]string{"1: taken without its key /etc/apt/keyrings/d.asc: gpg --armor --export prints it for gpgkey; without arch amd64; without trusted yes", "2: it is switched off", "4: it is not a line"}},
	{"twice.sources", "sources", "Types: deb\nURIs: https://apt.example.org\nSuites: stable\nSuites: testing\nComponents: main\n",
		`{"conf":{"apt":{"repositories":{"twice":{"components":["main"],"distributions":["stable"],"url":"https://apt.example.org"}}}}}`, []string{"1: taken without suites, again testing"}},
	{"twice.list", "sources", "deb [arch=amd64 arch=i386 suites=x] https://apt.example.org trixie main\n",
		`{"conf":{"apt":{"repositories":{"twice":{"components":["main"],"distributions":["trixie"],"url":"https://apt.example.org"}}}}}`,
		[]string{"1: taken without arch amd64; without arch, again i386; without suites, again x"}},
	{"interfaces.list", "sources", "deb https://apt.example.org trixie main\ndeb https://apt.example.org trixie main\n",
		`{"conf":{"apt":{"repositories":{"interfaces":{"components":["main"],"distributions":["trixie"],"url":"https://apt.example.org"}}}}}`, []string{"1: interfaces.list:2 sets it again"}},
	{"backports.pref", "preferences", "Package: *\nPin: release n=trixie-backports\nPin-Priority: 500\n\nPackage: telnetd\nPin: version *\nPin-Priority: -1\n", `{"conf":{}}`,
		[]string{"1: a lock says each version", "5: write conf.apt.blacklistpkgs"}},
	{"preseed.cfg", "preseed", "#_preseed_V1\nd-i pkgsel/include string postfix jq\npostfix postfix/main_mailer_type select Local only\nnslcd nslcd/x boolean true\nd-i time/zone string UTC\nodd\n",
		`{"conf":{"apt":{"packages":[{"debconf":[{"answer":"Local only","question":"postfix/main_mailer_type","question_type":"select"}],"name":"postfix"},{"name":"jq"}]}}}`,
		[]string{"4: write it as debconf", "5: it is a question of the installer", "6: it is not an answer"}},

	{"thp.conf", "tmpfiles", "w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\nw /proc/sys/vm/swappiness - - - - 7\n",
		`{"conf":{"sysctl":{"vm.swappiness":"7"},"sysfs":{"/sys/kernel/mm/transparent_hugepage/enabled":"never"}}}`, nil},
	{"/etc/tmpfiles.d/app.conf", "tmpfiles", "# app\nd /run/app 0750 root adm -\nw /sys/a - - - - %m\n", `{"conf":{"files":{"/etc/tmpfiles.d/app.conf":{"content":"# app\nd /run/app 0750 root adm -\nw /sys/a - - - - %m\n"}}}}`, nil},
	{"/usr/lib/tmpfiles.d/x.conf", "tmpfiles", "d /run/x 0750 root adm -\n", `{"conf":{}}`, []string{"1: a package brings it"}},
	{"60-io.rules", "udev", "ACTION==\"add\", KERNEL==\"sd[a-z]\", ATTR{queue/scheduler}=\"none\"\n",
		`{"conf":{"files":{"/etc/udev/rules.d/60-io.rules":{"content":"ACTION==\"add\", KERNEL==\"sd[a-z]\", ATTR{queue/scheduler}=\"none\"\n"}}}}`, nil},
	{"interfaces", "interfaces", "source interfaces.d/*\n\nauto lo eth0 eth0.7\niface lo inet loopback\n\niface eth0 inet static\n  address 192.0.2.5\n  netmask 255.255.255.0\n  gateway 192.0.2.1\n  dns-nameservers 192.0.2.53 192.0.2.54\n  mtu 9000\n  up ip route add 10.0.0.0/8 via 192.0.2.9\n  wpa-ssid x\n" +
		"iface eth0 inet6 dhcp\niface eth0.7 inet static\n  address 198.51.100.5/24\n  gateway 198.51.100.1\n  metric 500\n",
		`{"machine":{"network":{"dns":["192.0.2.53","192.0.2.54"],"interfaces":[{"addresses":["192.0.2.5/24"],"dhcp":"ipv6","gateway":"192.0.2.1","mtu":"9000","name":"eth0"},` +
			`{"addresses":["198.51.100.5/24"],"name":"eth0.7","routes":[{"metric":"500","to":"0.0.0.0/0","via":"198.51.100.1"}],"vlan":{"id":"7","on":"eth0"}}]}}}`,
		[]string{"1: import those files", "4: each node has it", "12: a command has no place", "13: it has no counterpart", "3: lo is not taken"}},
	{"/etc/network/interfaces.d/uplink", "interfaces", "auto bond0 vlan8\niface bond0 inet manual\n  bond-slaves eth0 eth1\nauto br0\niface br0 inet dhcp\n  bridge_ports eth2\niface eth3 inet dhcp\nallow-hotplug eth4\niface eth4 inet ppp\nauto eth5 \\\n  eth6\n" +
		"iface vlan8 inet dhcp\n  vlan-raw-device eth9\nmapping eth7\n  script x\nallow-hotplug eth8\niface eth8 inet dhcp\n  metric 5\n",
		`{"machine":{"network":{"interfaces":[{"dhcp":"ipv4","name":"eth8"}]}}}`,
		[]string{"10: a line that the next", "11: it belongs to", "14: it has no counterpart", "15: it belongs to", "2: a site finds members", "3: a site finds members", "5: a site has cards", "6: a site has cards",
			"7: nothing starts it", "9: the method ppp", "12: a site refuses it", "13: a site refuses it", "18: it is of nothing", "1: bond0 is not", "1: a site refuses it", "4: br0 is not", "8: eth4 is not"}},
	{"/etc/apparmor.d/local/usr.sbin.chronyd", "apparmor", "#include <abstractions/ssl_certs>\n/etc/chrony/site.d/** r,\n",
		`{"conf":{"apparmor":{"profiles":{"local/usr.sbin.chronyd":"#include \u003cabstractions/ssl_certs\u003e\n/etc/chrony/site.d/** r,\n"}}}}`, nil},
	{"tunables/home.d/site", "apparmor", "@{HOMEDIRS}+=/srv/home/\n", `{"conf":{"apparmor":{"profiles":{"tunables/home.d/site":"@{HOMEDIRS}+=/srv/home/\n"}}}}`, nil},
	{"/etc/apparmor.d/usr.sbin.x", "apparmor", "profile x /usr/sbin/x {\n  capability chown,\n  /etc/x r,\n  /run/x rw,\n}\n", `{"conf":{}}`, []string{"1: packages bring profiles"}},
	{"fstab", "fstab", "/dev/vdb /srv ext4 noexec,x-a 0 0\n", `{"conf":{"mounts":{"srv":{"device":"/dev/vdb","mnt_tgt":"/srv","options":"noexec","type":"ext4"}}}}`, []string{"1: taken without x-a"}},
	{"limits.conf", "limits", "* soft nofile 1024\n", `{"conf":{"limits":{"all-soft-nofile":{"domain":"*","item":"nofile","type":"soft","value":"1024"}}}}`, nil},
	{"sysctl.conf", "sysctl", "vm.swappiness = 5\n", `{"conf":{"sysctl":{"vm.swappiness":"5"}}}`, nil},
	{"kvm.conf", "modprobe", "options kvm nested=1\nblacklist pcspkr\n", `{"conf":{"modules":{"blacklist":["pcspkr"],"parameters":{"kvm":{"nested":"1"}}}}}`, nil},
	{"passwd", "passwd", "ann:x:1000:1000::/home/ann:/bin/bash\n", `{"conf":{"uamlite":{"users":[{"user_name":"ann","user_shell":"/bin/bash","user_sshkeys":["Unmanaged"],"user_uid":"1000"}]}}}`, []string{"1: taken without password"}},
	{"installed", "packages", "jq\tinstall\nlibc6:i386\tinstall\nzlib1g:amd64\tinstall\n", `{"conf":{"apt":{"packages":[{"name":"jq"},{"name":"zlib1g"}]}}}`,
		[]string{"2: libc6:i386 is a package of another architecture"}},
	{"60-caisson-x.conf", "sysusers", "u app 950 \"App\" /srv/app\nm app adm\n", `{"conf":{}}`, []string{"1: accounts of the system", "2: accounts of the system"}},
}

// TestOthers: what others are configured with becomes what a site has for it, each line in
// the coverage, and the rest has a reason.
func TestOthers(t *testing.T) {
	for _, c := range others {
		f := File{Name: c.name, Data: []byte(c.text)}
		if k := kindOf(f); k == nil || k.name != c.kind {
			t.Errorf("%s is of kind %+v, want %s", c.name, k, c.kind)
			continue
		}
		r, err := Import([]File{f})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(r.Parts())
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.parts {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.parts)
		}
		var why []string
		for _, l := range r.Coverage {
			if l.Taken == (l.As == "") && l.Why == "" && c.kind != "tuned" {
				t.Errorf("%s: %+v", c.name, l)
			}
			if l.Why != "" {
				why = append(why, fmt.Sprintf("%d: %s", l.Line, l.Why))
			}
		}
		if !slices.EqualFunc(why, c.why, strings.HasPrefix) {
			t.Errorf("%s: reasons\n%s\nwant\n%s", c.name, strings.Join(why, "\n"), strings.Join(c.why, "\n"))
		}
		parsesAsIncluded(t, r)
	}
}

// TestWordsOfLines puts another word in the place of each of a file in lines, and one after each
// line: what comes out is another site, or has another reason.
func TestWordsOfLines(t *testing.T) {
	word := regexp.MustCompile(`[^\s=\[\]]+`)
	// What says nothing: comments, but #include, names of sections that have a type.
	nothing := regexp.MustCompile(`^\s*($|#([^i]|$))|^(summary=|  more$|\[(more|off|vm)\])`)
	outcome := func(name, kind string, lines []string) (string, []coverage.Line) {
		r, err := Import([]File{{Name: name, Kind: kind, Data: []byte(strings.Join(lines, "\n"))}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(r.Parts())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Coverage {
			if l.Why != "" {
				out = fmt.Appendf(out, "%d: %s: %s\n", l.Line, l.Text, l.Why)
			}
		}
		return string(out), r.Coverage
	}
	for _, c := range others {
		if !slices.Contains([]string{"tuned", "networkd", "sources", "apparmor", "preferences", "tmpfiles", "udev", "interfaces", "packages", "sysusers",
			"fstab", "limits", "sysctl", "modprobe", "passwd", "preseed", "link", "ethtool", "unit"}, c.kind) {
			continue
		}
		lines := strings.Split(c.text, "\n")
		had, covered := outcome(c.name, c.kind, lines)
		for n, was := range lines {
			// A whole file or a paragraph that is not taken has one reason.
			of := slices.IndexFunc(covered, func(l coverage.Line) bool {
				return l.Line <= n+1 && l.Why != "" && !l.Taken && (l.Text == "the whole file" || strings.Contains(lines[l.Line-1], ": "))
			})
			if nothing.MatchString(was) || of >= 0 {
				continue
			}
			said, _, _ := strings.Cut(was, " # ")
			for _, at := range append(word.FindAllStringIndex(said, -1), []int{len(said), len(said)}) {
				odd := "oddword"
				if at[0] == at[1] {
					odd = " oddword"
				}
				lines[n] = said[:at[0]] + odd + said[at[1]:]
				if now, _ := outcome(c.name, c.kind, lines); now == had {
					t.Errorf("%s:%d: %q for %q goes without a reason", c.name, n+1, lines[n], was)
				}
			}
			lines[n] = was
		}
	}
}

// parsesAsIncluded holds a result to what a site makes of it.
func parsesAsIncluded(t *testing.T, r *coverage.Result) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	root := fstest.MapFS{"site.yaml": {Data: []byte(coverage.SiteHead + "values: [values.yaml]\n")}, "values.yaml": {Data: []byte("conf: {}\n")}, "imported.yaml": {Data: b.Bytes()}}
	if bytes.Contains(b.Bytes(), []byte("apiVersion:")) {
		root["site.yaml"].Data = []byte(coverage.SiteHead + "include: [imported.yaml]\n")
	} else {
		root["site.yaml"].Data = []byte(coverage.SiteHead + "values: [imported.yaml]\n")
	}
	if _, found := site.Parse(root, "site.yaml"); found.Err() != nil {
		t.Errorf("%v\n%s", found.Problems, b.String())
	}
}

// TestInterfacesAreWhatTheyWere imports networks that are drawn: an interface that is taken
// has the addresses, routes and flags of its entry and no others, and what is missing has a
// reason with its line.
func TestInterfacesAreWhatTheyWere(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		doc := "network:\n  version: 2\n  ethernets:\n"
		type entry struct {
			addresses []string
			dhcp      string
			gateway   bool
			line      int
			optional  bool
			odd       int // words that a site does not have
		}
		want, line := map[string]entry{}, 3
		for n := range 1 + random.IntN(3) {
			name, e := fmt.Sprintf("eth%d", n), entry{line: line + 1}
			var words []string
			for m := range random.IntN(3) {
				a := fmt.Sprintf("192.0.%d.%d/24", n, 10+m)
				if e.addresses = append(e.addresses, a); m == 1 && random.IntN(4) == 0 {
					e.addresses = e.addresses[:1]
					e.odd++
					a = "{'" + a + "': {label: x}}"
				}
				words = append(words, a)
			}
			text := fmt.Sprintf("    %s: {addresses: [%s]", name, strings.Join(words, ", "))
			if v4 := random.IntN(2) == 0; v4 {
				text, e.dhcp = text+", dhcp4: true", "ipv4"
			}
			if e.gateway = len(e.addresses) > 0 && random.IntN(2) == 0; e.gateway {
				text += fmt.Sprintf(", routes: [{to: default, via: 192.0.%d.1}]", n)
			}
			if e.optional = random.IntN(4) == 0; e.optional {
				text += ", optional: true"
			}
			for _, odd := range []string{", accept-ra: false", ", set-name: x"} {
				if random.IntN(4) == 0 {
					text += odd
					e.odd++
				}
			}
			doc, line = doc+text+"}\n", line+1
			want[name] = e
		}
		r, err := Import([]File{{Name: "f", Data: []byte(doc)}})
		if err != nil {
			t.Fatal(err)
		}
		network, _ := r.Machine["network"].(map[string]any)
		list, _ := network["interfaces"].([]any)
		seen := map[string]bool{}
		for _, i := range list {
			i := i.(map[string]any)
			e, text := want[i["name"].(string)], func(key string) string { s, _ := i[key].(string); return s }
			seen[text("name")] = true
			addresses, _ := i["addresses"].([]any)
			same := len(addresses) == len(e.addresses) && text("dhcp") == e.dhcp && (text("gateway") != "") == e.gateway && i["routes"] == nil && (i["optional"] == true) == e.optional
			for n := range addresses {
				same = same && addresses[n] == e.addresses[n] && netip.MustParsePrefix(e.addresses[n]).IsValid()
			}
			if !same {
				t.Fatalf("%v, want %+v:\n%s", i, e, doc)
			}
		}
		for name, e := range want {
			missed := 0
			for _, l := range r.Coverage {
				if l.Line == e.line && l.Why != "" {
					missed++
				}
			}
			if wants := e.odd; !seen[name] {
				wants++
				if len(e.addresses) > 0 || e.dhcp != "" || missed != wants {
					t.Fatalf("%s is left out, with %d reasons:\n%s", name, missed, doc)
				}
			} else if missed != wants {
				t.Fatalf("%s has %d reasons, want %d:\n%s", name, missed, wants, doc)
			}
		}
	}
}
