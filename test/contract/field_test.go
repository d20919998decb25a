// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fieldCases are things that people have on their machines and that a tool may read wrongly. Each has
// a test that holds what caisson makes of it; input is a telling part of what that test is given,
// in its file or in a table below the testdata of its package.
var fieldCases = []struct{ what, dir, test, input string }{
	{"an ArmadaChart with values", "spec/site/document", "TestForms", "kind: ArmadaChart"},
	{"a rule of sudo for some commands", "spec/site/convert", "TestWhatASiteCannotSay", "ALL=(postgres) NOPASSWD: ALL"},
	{"options of a mount unit", "spec/site/convert", "TestWhatASiteCannotSay", "noexec"},
	{"kernel arguments of butane", "spec/site/convert", "TestOthers", "openshift: {kernel_arguments: "},
	{"interfaces of netplan", "spec/site/convert", "TestOthers", "network-config"},
	{"modprobe.d", "spec/site/convert", "TestImport", "install cramfs /bin/true"},
	{"modules-load.d", "spec/site/convert", "TestImport", "/etc/modules-load.d/k8s.conf"},
	{"a flat repository", "builder/apt", "TestFlatRepository", `Distributions: []string{"/"}`},
	{"a flat repository of a site", "spec/site", "TestRules", `distributions: ["/"]`},
	{"a router in no network of the card", "bootagent/boot/network/table", "TestOnLink", "192.0.2.77/32"},
	{"the same in the loader", "bootagent/boot/network", "TestRouterElsewhere", "192.0.2.77/32"},
	{"cards of a bond, by their own addresses", "bootagent/items/item/netif", "TestFind", "perm_hwaddr"},
	{"a bond's hash policy", "spec/site", "TestRules", "transmitHashPolicy: layer3+4"},
	{"UUIDs that firmware fills in", "spec/site", "TestRules", "03000200-0400-0500-0006-000700080009"},
	{"the same as a machine's identity", "bootagent/boot/identity", "TestFillerUUIDsAreNoIdentity", "03000200-0400-0500-0006-000700080009"},
	{"a name of an iSCSI initiator", "bootagent/boot/handover", "TestPerHost", "iscsi/initiatorname.iscsi"},
	{"a name that sudo does not read", "spec/site", "TestRules", "/etc/sudoers.d/90-ops.conf"},
	{"open files above what the kernel grants", "spec/site", "TestRules", "item: nofile, value: '2097152'"},
	{"a script with CR LF", "spec/site", "TestRules", `#!/bin/sh -e\r\n`},
	{"owners of a mount by their names", "bootagent/items", "TestPairsApplyInOnePass", `"uid=ops", "gid=ops"`},
	{"a renamed interface", "bootagent/items/tunable", "TestRenamedInterface", `"link", "set", "v0", "name", "v9"`},
	{"its driver's settings, and another card of its name", "bootagent/items/nics", "TestRenamedAndReplaced", `rename("b0", "a0")`},
	{"two challenges in one header", "oci/pull", "TestChallenges", `Basic realm="reg", Bearer realm="TOKENS"`},
	{"a registry that deletes nothing", "oci/registry", "TestUntagWhereNothingIsDeleted", "StatusMethodNotAllowed"},
	{"prune at such a registry", "cmd/caisson", "TestPruneWhereNothingIsDeleted", "StatusMethodNotAllowed"},
	{"identities of SSH", "fleet/seal", "TestIdentities", "MarshalPrivateKeyWithPassphrase"},
	{"a file of SOPS", "cmd/caisson", "TestScript", "ENC[AES256_GCM"},
	{"a pod that is made again under its name", "kube/drain", "TestSameNameElsewhere", "uid-2"},
	{"a file of Ignition that has only a mode", "spec/site/convert", "TestWhatASiteCannotSay", `"path":"/etc/ssh/sshd_config","mode":384`},
	{"texts beside a butane file", "spec/site/convert", "TestWhatASiteCannotSay", "contents_local: a.service"},
	{"a bind of what a new mount brings", "bootagent/items", "TestPairsApplyInOnePass", `mount("/srv/a", "/srv/data", "none", "bind")`},
	{"specifiers of [Install]", "bootagent/items/units", "TestEnablesAsSystemctl", "sys-subsystem-net-devices-%i.device"},
	{"a shell that is not there", "builder/accounts", "TestRefused", `Shell: "/usr/bin/zsh"`},
	{"time servers and no time service", "spec/site", "TestRules", "blacklistpkgs: [systemd-timesyncd"},
	{"the layer's time service", "builder", "TestTimeService", "chrony"},
	{"answers for a package of the base", "builder", "TestLongDebianOnNodes", "openssh-server/password-authentication"},
	{"a script of a package that needs lo", "builder", "TestLongDebianOnNodes", "usr/sbin/postfix"},
	{"manual pages of a layer", "builder", "TestSaysWhatIsLeftOut", "man-db"},
	{"compressed firmware", "builder/boot", "TestFirmwareCompressed", "e2.fw.zst"},
	{"a third party's source before Debian's", "builder/apt", "TestMirrorOfThirdParty", "azure-cli.list"},
	{"a password in the address of an archive", "builder/apt", "TestCredentialsStay", "ci:hunter2@"},
	{"the same in a site", "spec/site", "TestRules", "ci:hunter2@"},
	{"a virtual package", "builder/apt", "TestVirtualPackage", "mail-transport-agent"},
	{"a default route by option 121 alone", "bootagent/boot/network", "TestOptionsOfDHCP", "121,0.0.0.0/0,192.0.2.254"},
	{"homes, groups and comments of passwd", "spec/site/convert", "TestWhatASiteCannotSay", "svc:x:2000:2000:Backup robot:/srv/svc:"},
	{"private keys that packages' scripts make", "builder/packages", "TestFind", "PRIVATE KEY"},
	{"two nodes of one layer with such packages", "test/vm", "TestLongTwoNodesOfOneLayer", "name: nvme-cli"},
	{"exports without a root of NFS version 4", "spec/site", "TestExportsHaveARoot", "/etc/exports.d/a.exports"},
	{"such exports that another node mounts", "test/vm", "TestLongStorage", "nfs4 192.0.2.1:/"},
	{"podman without a disk", "test/roles", "TestLongRoles", "podman run --rm localhost/box"},
	{"parameters that a service needs at its start", "test/vm", "TestEveryKind", "net.ipv4.ip_nonlocal_bind: 1"},
	{"a mount before a unit without default dependencies", "bootagent/boot/handover", "TestOrderOfMounts", `"nfs-server.service", "", "ext4"`},
	{"what the base has by a Recommends", "builder", "TestRecommended", "bookworm"},
}

// TestFieldCases: each case has its test, and the test still has its input.
func TestFieldCases(t *testing.T) {
	if len(fieldCases) < 53 {
		t.Errorf("%d cases", len(fieldCases))
	}
	for _, c := range fieldCases {
		test, input := false, false
		err := filepath.WalkDir("../../"+c.dir, func(name string, e os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && name != "../../"+c.dir && !strings.Contains(name, "/testdata"):
				return filepath.SkipDir
			case e.IsDir() || !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".txtar"):
				return nil
			}
			text := string(read(t, name))
			test = test || strings.Contains(text, fmt.Sprintf("\nfunc %s(t *testing.T)", c.test))
			input = input || strings.Contains(text, c.input)
			return nil
		})
		if err != nil || !test || !input {
			t.Errorf("%s: %s has %s: %v, and %q: %v, %v", c.what, c.dir, c.test, test, c.input, input, err)
		}
	}
}
