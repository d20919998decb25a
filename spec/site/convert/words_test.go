// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/test/require"
)

const ofAHost = "../../../docs/from/debian.md"

// hostWords are the rows of docs/from/debian.md by their first cell, each with a part of a
// site that says it, and a part of the recipe or of the overlay that comes of it; or, where
// that begins with "refused:", of the problem and its hint. A file that is imported stands
// in place of the site where its first line is "file: NAME".
var hostWords = map[string][2]string{
	"`apt install -t trixie-backports systemd`, a pin of a release": {"conf: {apt: {packages: [{name: systemd, from: trixie-backports}]}}", `{"name":"systemd","from":"trixie-backports"}`},
	"a pin of priority -1":                                        {"conf: {apt: {blacklistpkgs: [telnetd]}}", `"blacklist":["telnetd"]`},
	"`apt install nginx=1.26.*`":                                  {"conf: {apt: {packages: [{name: nginx, version: 1.26.3-3}]}}", `{"name":"nginx","version":"1.26.3-3"}`},
	"a local `.deb`":                                              {"conf: {apt: {repositories: {own: {url: \"file:/srv/own\", distributions: [./], gpgkey: \"-----BEGIN PGP PUBLIC KEY BLOCK-----\"}}}}", `"url":"file:/srv/own"`},
	"`[signed-by=…]`":                                             {"conf: {apt: {repositories: {v: {url: http://a.example.org/, distributions: [x], components: [main], gpgkey: \"-----BEGIN PGP PUBLIC KEY BLOCK-----\"}}}}", `"key":"-----BEGIN PGP`},
	"a repository's password":                                     {"conf: {apt: {repositories: {v: {url: http://u:p@a.example.org/, distributions: [x], components: [main]}}}}", "refused:has credentials in it /etc/apt/auth.conf.d"},
	"/etc/apparmor.d/local, tunables":                             {"conf: {apparmor: {profiles: {local/usr.sbin.chronyd: \"/x r,\\n\", tunables/home.d/site: \"@{H}+=/y\\n\"}}}", `"file":"local/usr.sbin.chronyd"`},
	"`dyndbg=\"module ice +p\"`":                                  {"machine: {kernel: {args: ['dyndbg=\"module ice +p\"']}}", `dyndbg=\"module ice +p\"`},
	"`metric` of a route":                                         {"machine: {network: {interfaces: [{name: eth0, addresses: [192.0.2.5/24], routes: [{to: 0.0.0.0/0, via: 192.0.2.2, metric: 500}]}]}}", `"metric":500`},
	"`primary` of a bond":                                         {"machine: {network: {interfaces: [{name: b, dhcp: ipv4, bond: {members: [\"52:54:00:00:00:01\"], mode: active-backup, primary: \"52:54:00:00:00:01\"}}]}}", `"primary":"52:54:00:00:00:01"`},
	"sysctls of an interface that comes later":                    {"conf: {sysctl: {net.ipv4.conf.tun7.rp_filter: 2}}", `net/ipv4/conf/tun7/rp_filter`},
	"rules of udev, tmpfiles.d":                                   {"file: 60-io.rules\nACTION==\"add\", KERNEL==\"sd*\", ATTR{queue/scheduler}=\"none\"\n", "/etc/udev/rules.d/60-io.rules"},
	"`/etc/network/interfaces`":                                   {"file: interfaces\nauto eth0\niface eth0 inet dhcp\n", `"dhcp":"ipv4"`},
	"`dpkg --add-architecture i386`":                              {"conf: {apt: {packages: [{name: \"libc6:i386\"}]}}", "refused:of another architecture run its programs in a container"},
	"a `.deb` without a repository":                               {"conf: {apt: {packages: [{name: ./own.deb}]}}", "refused:is not the name of a package"},
	"options `trusted`, `arch`, `allow-insecure` of a repository": {"conf: {apt: {repositories: {v: {url: http://a.example.org/, distributions: [x], components: [main], trusted: true}}}}", `refused:unknown key "trusted" gpgkey`},
	"patterns of versions":                                        {"conf: {apt: {packages: [{name: nginx, version: 1.26.*}]}}", "refused:is not a package version caisson lock --update"},
	"accounts with numbers of NFS or a directory (501, 100001)":   {"conf: {uamlite: {users: [{user_name: app, user_uid: 100001, user_sshkeys: [Unmanaged]}]}}", "refused:between 1000 and 59999 chown --from"},
	"sysusers.d of one's own":                                     {"file: app.sysusers\nu app 950 \"App\" /srv/app\n", "refused:build a package that brings the file"},
	"`hidepid=` in fstab":                                         {"conf: {mounts: {proc: {device: proc, mnt_tgt: /proc, type: proc, options: hidepid=2}}}", "refused:would hide the system docs/from/debian.md"},
	"bridges":                                                     {"machine: {network: {interfaces: [{name: br0, dhcp: ipv4, bridge: {members: [eth0]}}]}}", `refused:unknown key "bridge" bond, vlan`},
	"a state disk behind multipath":                               {"layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}, stateDisk: {create: true, disks: [/dev/mapper/mpatha]}}", "refused:is not a serial number or WWN lsblk"},
	"`preseed` of the installer":                                  {"file: preseed.cfg\n#_preseed_V1\nd-i time/zone string UTC\n", "refused:nothing is installed"},
}

// TestWordsOfAHost: each row of docs/from/debian.md is so: the word is taken and is in what
// is signed, or it is refused with a place and what to do.
func TestWordsOfAHost(t *testing.T) {
	page, err := os.ReadFile(ofAHost)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (.*?) \| `).FindAllSubmatch(page, -1) {
		if row := string(m[1]); row != "on a host" {
			rows[row] = true
			if hostWords[row][0] == "" {
				t.Errorf("no case is there for the row %s", row)
			}
		}
	}
	for row, c := range hostWords {
		if !rows[row] {
			t.Errorf("%s has no row %s", ofAHost, row)
		}
		want, refused := strings.CutPrefix(c[1], "refused:")
		got := becomes(t, c[0], refused)
		for _, word := range strings.Split(want, " ") {
			if !refused {
				word = want
			}
			if !strings.Contains(got, word) {
				t.Errorf("%s: %s has no %s", row, got, word)
			}
		}
	}
}

// becomes returns what is signed of a part of a site or of a file of a host, in JSON, or, where
// it is to be refused, the problems with their places and hints.
func becomes(t *testing.T, text string, refused bool) string {
	t.Helper()
	if rest, ok := strings.CutPrefix(text, "file: "); ok {
		name, data, _ := strings.Cut(rest, "\n")
		r, err := Import([]File{{Name: name, Data: []byte(data)}})
		if err != nil {
			t.Fatal(err)
		}
		if refused {
			return fmt.Sprint(r.Coverage)
		}
		out, err := json.Marshal(r.Parts())
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	head := coverage.SiteHead
	if strings.HasPrefix(text, "layer:") {
		head, _, _ = strings.Cut(coverage.SiteHead, "layer:")
	}
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(head + text + "\n")}}, "site.yaml")
	if refused {
		if found.Err() == nil {
			t.Errorf("%s is taken", text)
		}
		said := ""
		for _, p := range found.Problems {
			if p.File != "site.yaml" || p.Line < 1 {
				t.Errorf("%s: no place: %+v", text, p)
			}
			if p.Severity == report.Error {
				said += p.Message + " " + p.Hint + "\n"
			}
		}
		return said
	}
	if found.Err() != nil {
		t.Errorf("%s: %v", text, found.Problems)
		return ""
	}
	overlay, err := s.Compile("x", "sha256:"+strings.Repeat("0", 64), "")
	if err != nil {
		t.Fatal(err)
	}
	variants, err := s.Variants()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(variants); err != nil {
		t.Fatal(err)
	}
	return string(overlay) + out.String()
}

// TestHidepid runs the command of the page's unit on a /proc of its own.
func TestHidepid(t *testing.T) {
	require.Root(t)
	require.Tool(t, "unshare", "mount")
	page, err := os.ReadFile(ofAHost)
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^ +ExecStart=(.*hidepid.*)$`).FindSubmatch(page)
	if command == nil {
		t.Fatal("the page has no unit for hidepid")
	}
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec", string(command[1])+"; grep ' /proc ' /proc/self/mountinfo").CombinedOutput()
	if err != nil || !regexp.MustCompile(`hidepid=(2|invisible)`).Match(out) {
		t.Errorf("%v: %s", err, out)
	}
}
