// SPDX-License-Identifier: Apache-2.0

package require

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packaged is the Debian package, or one that depends on it, of each program that a test needs.
var packaged = map[string]string{
	"ansible-inventory": "ansible-core", "ansible-playbook": "ansible-core",
	"apt-cache": "mmdebstrap", "apt-config": "mmdebstrap", "apt-get": "mmdebstrap",
	"busybox": "busybox-static", "chromium": "chromium", "cpio": "cpio", "cryptsetup": "cryptsetup-bin", "curl": "curl",
	"debugfs": "e2fsprogs", "dhcpd": "isc-dhcp-server", "dnsmasq": "dnsmasq-base", "docker-registry": "docker-registry",
	"dpkg-scanpackages": "dpkg-dev", "dumpe2fs": "e2fsprogs", "e2fsck": "e2fsprogs", "ethtool": "ethtool", "filefrag": "e2fsprogs",
	"fsck.vfat": "dosfstools", "genisoimage": "genisoimage", "git": "git", "gpg": "gnupg", "gpgconf": "gnupg", "initdb": "postgresql",
	"ip": "iproute2", "isoinfo": "genisoimage", "jq": "jq", "jsonnet": "jsonnet", "kea-dhcp4": "kea-dhcp4-server", "losetup": "mount",
	"make": "make", "make-bcache": "bcache-tools", "mcopy": "mtools", "mdel": "mtools", "mdir": "mtools", "mke2fs": "e2fsprogs",
	"mkfs.btrfs": "btrfs-progs", "mkfs.exfat": "exfatprogs", "mkfs.ext4": "e2fsprogs", "mkfs.f2fs": "f2fs-tools",
	"mkfs.vfat": "dosfstools", "mkfs.xfs": "xfsprogs", "mkntfs": "ntfs-3g", "mksquashfs": "squashfs-tools", "mmd": "mtools",
	"mmdebstrap": "mmdebstrap", "modprobe": "kmod", "mount": "mount", "mtype": "mtools", "node": "nodejs", "npm": "npm",
	"objdump": "gcc", "openssl": "openssl", "osslsigncode": "osslsigncode", "pgrep": "procps", "pkcs11-tool": "opensc", "podman": "podman",
	"prometheus": "prometheus", "promtool": "prometheus", "pvcreate": "lvm2", "qemu-aarch64-static": "qemu-user-static",
	"qemu-img": "qemu-utils", "qemu-system-aarch64": "qemu-system-arm", "qemu-system-x86_64": "qemu-system-x86", "radvd": "radvd",
	"sfdisk": "fdisk", "sgdisk": "gdisk", "softhsm2-util": "softhsm2", "ssh": "openssh-client", "ssh-keygen": "openssh-client",
	"sshd": "openssh-server", "strace": "strace", "swtpm": "swtpm", "swtpm_ioctl": "swtpm-tools", "sysctl": "procps",
	"systemctl": "systemd", "systemd": "systemd", "systemd-analyze": "systemd", "systemd-measure": "systemd", "systemd-networkd": "systemd",
	"systemd-sysusers": "systemd", "umount": "mount", "unsquashfs": "squashfs-tools", "veritysetup": "cryptsetup-bin",
	"visudo": "sudo", "xorriso": "xorriso", "xz": "xz-utils", "zstd": "zstd",
}

// essential has the programs of what each Debian has, and of the toolchain that runs the tests.
var essential = []string{"basenc", "bash", "chmod", "chroot", "cmp", "cp", "diff", "dpkg", "dpkg-deb", "find", "findmnt", "getconf",
	"go", "gzip", "mkswap", "nsenter", "perl", "setpriv", "sleep", "tar", "timeout", "truncate", "unshare"}

// named has the programs that a file names by other than literals, nil where its callers name them.
var named = map[string][]string{
	"bootagent/boot/disk/foreign_test.go": {"cryptsetup", "genisoimage", "make-bcache", "mke2fs", "mkfs.btrfs", "mkfs.exfat", "mkfs.f2fs",
		"mkfs.vfat", "mkfs.xfs", "mkntfs", "mksquashfs", "mkswap", "pvcreate"},
	"bootagent/boot/handover/supervise_test.go": {"systemd"},
	"bootagent/boot/network/options_test.go":    {"systemd-networkd"},
	"builder/boot/programs_test.go":             {"e2fsck", "mke2fs"},
	"fleet/server/ansible_test.go":              {"ansible-inventory", "ansible-playbook"},
	"media/format/measure_test.go":              {"systemd-measure"},
	"media/netboot/tftp_test.go":                {"busybox", "curl"},
	"sandbox/picture/picture_test.go":           nil,
	"test/itemtest/namespaces.go":               nil,
}

// TestToolsAreInstalled: install-deps installs each program that a test needs, so none is skipped, or
// fails under CAISSON_REQUIRE=all, for want of one.
func TestToolsAreInstalled(t *testing.T) {
	script, err := os.ReadFile("../../packaging/hack/install-deps")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(script), "demo=(")
	list, _, _ = strings.Cut(list, "\nif ")
	installed := []string{"nodejs", "npm"} // where there is no npm
	for line := range strings.Lines(list) {
		line, _, _ = strings.Cut(line, "#")
		installed = append(installed, strings.Fields(line)...)
	}
	asked := toolsAsked(t)
	if len(asked) < 90 {
		t.Errorf("tests need %d programs", len(asked))
	}
	for _, tool := range slices.Sorted(maps.Keys(asked)) {
		of := packaged[tool]
		if !slices.Contains(essential, tool) && !slices.Contains(installed, of) {
			t.Errorf("%s needs %s, of package %q, which install-deps does not install", asked[tool], tool, of)
		}
	}
	for _, tool := range append(slices.Sorted(maps.Keys(packaged)), essential...) {
		if asked[tool] == "" {
			t.Errorf("no test needs %s", tool)
		}
	}
}

// toolsAsked returns the programs that tests of the repository need, each with a file that does.
func toolsAsked(t *testing.T) map[string]string {
	asked, unnamed := map[string]string{}, maps.Clone(named)
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".go" {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil || !bytes.Contains(text, []byte("require.Tool(")) && !bytes.Contains(text, []byte("Namespaces(")) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || !asksTools(call.Fun, path.Dir(name)) {
				return true
			}
			for _, arg := range call.Args[min(1, len(call.Args)):] {
				if of, is := arg.(*ast.BasicLit); is {
					tool, _ := strconv.Unquote(of.Value) // parsed
					asked[tool] = name
				} else if tools, is := named[name]; is {
					delete(unnamed, name)
					for _, tool := range tools {
						asked[tool] = name
					}
				} else {
					t.Errorf("%s needs programs that are named by other than literals", name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range unnamed {
		t.Errorf("%s names no programs by other than literals", name)
	}
	return asked
}

// asksTools reports whether a function, as a package calls it, is [Tool], or one that hands its programs on.
func asksTools(e ast.Expr, dir string) bool {
	switch f := e.(type) {
	case *ast.SelectorExpr:
		of, is := f.X.(*ast.Ident)
		return is && (of.Name == "require" && f.Sel.Name == "Tool" || of.Name == "itemtest" && f.Sel.Name == "InNamespaces")
	case *ast.Ident:
		return f.Name == "inNamespaces" && dir == "sandbox/picture"
	}
	return false
}
