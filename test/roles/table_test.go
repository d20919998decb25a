// SPDX-License-Identifier: Apache-2.0

package roles

// role is a site with packages, and what these must do on its node.
type role struct {
	site string // testdata/SITE.yaml, whose node is "node"
	disk bool   // whether a disk makes a difference
	does []does
}

// does is a command that ends with 0.
type does struct{ what, command string }

// soon is a command that waits for another, which ends with 0 within two minutes.
func soon(command string) string {
	return "timeout 120 sh -c '\nuntil " + command + "; do sleep 1; done'"
}

// ann runs a command as the user of the site, in a session.
func ann(command string) string { return "runuser -l ann -c '\n" + command + "'" }

// boxTar makes a file of busybox, and box an image of that.
const (
	boxTar = "mkdir -p /tmp/box/bin && cp /bin/busybox /tmp/box/bin && ln -s busybox /tmp/box/bin/sh && ln -s busybox /tmp/box/bin/cat && ln -s busybox /tmp/box/bin/httpd && " +
		"tar -C /tmp/box -cf /tmp/box.tar ."
	box = "podman import /tmp/box.tar localhost/box"
)

var roles = []role{
	{"containers", true, []does{
		{"an image, of root", boxTar + " && " + box},
		{"the kernel's overlays", "podman info --format '{{.Store.GraphDriverName}}' | grep -x overlay && podman info | grep 'Native Overlay Diff'"},
		{"a container runs", "podman run --rm localhost/box /bin/cat /etc/hostname"},
		{"its memory is limited", "podman run --rm -m 64m localhost/box cat /sys/fs/cgroup/memory.max | grep -x 67108864"},
		{"its port is published", "podman run -d -p 8080:80 localhost/box httpd -f -p 80 -h /bin && " + soon("busybox wget -qO /dev/null http://127.0.0.1:8080/sh")},
		{"an image, of a user", ann(box)},
		{"a user's container runs", ann("podman run --rm localhost/box cat /etc/hostname")},
		{"a user's container is limited", ann("podman run --rm -m 64m localhost/box cat /sys/fs/cgroup/memory.max") + " | grep -x 67108864"},
		{"a user's port is published", ann("podman run -d -p 8081:80 localhost/box httpd -f -p 80 -h /bin") + " && " + soon("busybox wget -qO /dev/null http://127.0.0.1:8081/sh")},
		{"plugins beside Debian's", "test -x /opt/cni/bin/bridge && cp /bin/busybox /opt/cni/bin/calico"},
	}},
	{"router", false, []does{
		{"a neighbour", "ip netns add far && ip link set far netns far && ip -n far addr add 192.0.2.2/24 dev far && ip -n far link set far up && " +
			"ip netns exec far bird -c /etc/bird/far.conf -s /run/far.ctl -P /run/far.pid"},
		{"frr learns a route", soon("ip route show proto bgp | grep ^203.0.113.0/24")},
		{"bird learns a route", soon("birdc -s /run/far.ctl show route | grep 198.51.100.0/24")},
		{"keepalived has the address", soon("ip addr show lan | grep 192.0.2.9/24")},
		{"it moves to who has precedence", "ip netns exec far keepalived --use-file=/etc/keepalived/far.conf --pid=/run/far-keepalived.pid --vrrp_pid=/run/far-vrrp.pid && " +
			soon("ip -n far addr show far | grep 192.0.2.9/24 && ! ip addr show lan | grep 192.0.2.9/24")},
		{"it comes back from who has died", "kill $(cat /run/far-keepalived.pid) && " + soon("ip addr show lan | grep 192.0.2.9/24")},
		{"haproxy has listened from the first", "systemctl show -P NRestarts haproxy | grep -x 0"},
		{"and answers at that address", soon("ip netns exec far bash -c \"exec 3<>/dev/tcp/192.0.2.9/8080; printf \\\"GET / HTTP/1.0\\r\\n\\r\\n\\\" >&3; grep -x balanced <&3\"")},
		{"chrony serves its time", soon("ip netns exec far perl /etc/far/ntp 192.0.2.1 | grep -x 8")},
		{"WireGuard lets a peer in", "ip -n far link add tunnel type wireguard && ip -n far addr add 198.18.0.2/24 dev tunnel && ip netns exec far wg set tunnel " +
			"private-key /etc/far/tunnel.key peer FP2ZZXIya6J+/Rf3N4MAmggXMv3eb2AlsrlyiRgDJ28= endpoint 192.0.2.1:51820 allowed-ips 198.18.0.1/32 && " +
			"ip -n far link set tunnel up && " + soon("ip netns exec far perl /etc/far/ntp 198.18.0.1 | grep -x 8")},
	}},
	{"database", true, []does{
		{"PostgreSQL answers", soon(`runuser -u postgres -- psql -qAtc "select 6*7" | grep -x 42`)},
		{"it keeps a row", `runuser -u postgres -- psql -qAtc "create table t (n int); insert into t values (1); checkpoint; select n from t" | grep -x 1`},
		{"MariaDB answers", soon(`mariadb -NBe "select 6*7" | grep -x 42`)},
		{"it keeps a row", `mariadb -NBe "create database kept; create table kept.t (n int); insert into kept.t values (1); select n from kept.t" | grep -x 1`},
	}},
	{"docker", true, []does{
		{"an image", boxTar + " && docker import /tmp/box.tar box"},
		{"the kernel's overlays", "docker info | grep -i 'storage driver: overlay'"},
		{"a container runs", "docker run --rm box cat /etc/hostname"},
		{"its memory is limited", "docker run --rm -m 64m box cat /sys/fs/cgroup/memory.max | grep -x 67108864"},
		{"it is confined", "docker run --rm box cat /proc/self/attr/current | grep -x 'docker-default (enforce)'"},
		{"its port is published", "docker run -d -p 8080:80 box httpd -f -p 80 -h /bin && " + soon("busybox wget -qO /dev/null http://127.0.0.1:8080/sh")},
	}},
	{"member", false, []does{
		{"MUNGE opens what it has sealed", soon("munge -n | unmunge | grep STATUS.*Success")},
		{"LUKS, by crypttab", "truncate -s 64M /var/tmp/disk && cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 /var/tmp/disk /etc/data.key && systemctl start systemd-cryptsetup@data"},
		{"LVM on it", "vgcreate data /dev/mapper/data && lvcreate -l 100%FREE -n kept data && mkfs.ext4 -q /dev/data/kept && mount /dev/data/kept /mnt && echo 42 >/mnt/kept"},
		{"it is there when it is opened again", "umount /mnt && vgchange -an data && systemctl stop systemd-cryptsetup@data && systemctl start systemd-cryptsetup@data && " +
			soon("vgchange -ay data && mount /dev/data/kept /mnt") + " && grep -x 42 /mnt/kept"},
	}},
}
