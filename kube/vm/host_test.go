// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
)

// host makes the disk of a host that caisson did not make: Debian with the example's kubelet
// and its configuration, and what Divingbell left. It boots by hand.
func (f *fleet) host(name string) machine.Options {
	f.Helper()
	tree, boot := filepath.Join(f.Dir, "tree"), filepath.Join(f.Dir, "boot")
	for path, text := range f.hostFiles(name) {
		f.must(os.MkdirAll(filepath.Dir(filepath.Join(tree, path)), 0o755))
		f.must(os.WriteFile(filepath.Join(tree, path), []byte(text), 0o644))
	}
	f.must(os.MkdirAll(boot, 0o755))
	hook := fmt.Sprintf(`set -e
cp -a %[1]s/. "$1"
chroot "$1" useradd --create-home --shell /bin/bash admin
install -D -o 1000 -g 1000 -m 600 %[1]s/etc/admin.pub "$1/home/admin/.ssh/authorized_keys"
chown 1000:1000 "$1/home/admin/.ssh"
chmod 600 "$1/etc/kubernetes/token"
chmod 440 "$1/etc/sudoers.d/admin"
systemctl --root="$1" enable kubelet systemd-networkd systemd-resolved ssh
cp -L "$1"/boot/vmlinuz-* %[2]s/kernel
cp -L "$1"/boot/initrd.img-* %[2]s/initrd`, tree, boot)
	made := filepath.Join(f.Dir, "made")
	f.does(exec.Command("mmdebstrap", "--quiet", "--variant=apt", "--include=systemd-sysv,systemd-resolved,dbus,udev,openssh-server,passwd,sudo,iproute2,procps,kmod,ethtool,initramfs-tools,linux-image-cloud-amd64,containerd,containernetworking-plugins,kubelet",
		"--customize-hook="+hook, "trixie", made, "deb "+f.mirror()+" trixie main", "deb [trusted=yes] copy:"+filepath.Join(f.Dir, "archive")+" stable main"))
	disk := filepath.Join(f.Dir, name+".raw")
	f.does(exec.Command("mkfs.ext4", "-q", "-d", made, disk, "4G"))
	return machine.Options{Name: name, MAC: "52:54:00:00:22:01", Memory: 2048, Disk: disk, Kernel: filepath.Join(boot, "kernel"), Initrd: filepath.Join(boot, "initrd"),
		Append: "root=/dev/vda rw console=ttyS0 net.ifnames=0"}
}

var unit = regexp.MustCompile(`(?s)kubelet\.service:\n +content: \|\n(.*?)\n      state:`)

// hostFiles are a host's own: the example's configuration of kubelet, and Divingbell's files.
func (f *fleet) hostFiles(name string) map[string]string {
	f.Helper()
	found := unit.FindStringSubmatch(f.read("site.yaml"))
	if found == nil {
		f.Fatal("the example has no kubelet.service")
	}
	out := map[string]string{
		"etc/hostname":                                    name + "\n",
		"etc/admin.pub":                                   string(ssh.MarshalAuthorizedKey(f.Key.PublicKey())),
		"etc/sudoers.d/admin":                             "admin ALL=(ALL) NOPASSWD:ALL\n",
		"etc/systemd/network/eth0.network":                "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n",
		"etc/modules-load.d/pods.conf":                    "overlay\nbr_netfilter\n",
		"etc/sysctl.d/pods.conf":                          "net.ipv4.ip_forward = 1\n",
		"etc/containerd/certs.d/_default/hosts.toml":      mirror,
		"etc/systemd/system/kubelet.service":              strings.ReplaceAll(found[1]+"\n", "        ", ""),
		"var/divingbell/sysctl/" + somaxconn:              "net.core.somaxconn = 4096\n",
		"etc/sysctl.d/" + somaxconn:                       "net.core.somaxconn=1024\n",
		"etc/security/limits.d/60-divingbell-nofile.conf": "* - nofile 65536\n",
		"srv/report.txt":                                  "",
	}
	for path, from := range map[string]string{"etc/containerd/config.toml": "containerd.toml", "etc/cni/net.d/10-pods.conflist": "pods.conflist", "etc/kubernetes/kubelet.yaml": "kubelet.yaml",
		"etc/kubernetes/bootstrap.yaml": "bootstrap.yaml", "etc/kubernetes/ca.pem": "ca.pem", "etc/kubernetes/token": "token"} {
		out[path] = f.read("files/" + from)
	}
	return out
}

// somaxconn is Divingbell's file for a kernel parameter, and its record of what was before.
const somaxconn = "60-divingbell-net.core.somaxconn.conf"

// mirror is the archive that this machine has its own packages of.
func (f *fleet) mirror() string {
	f.Helper()
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages").Output()
	f.must(err)
	for uri := range strings.FieldsSeq(string(out)) {
		if !strings.Contains(uri, "security") {
			return uri
		}
	}
	f.Fatal("apt names no archive: run apt-get update")
	return ""
}
