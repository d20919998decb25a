// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"strconv"
	"strings"
)

// readPasswd reads the people of passwd(5).
func readPasswd(r *reading) {
	r.lines("#", func(n int, line string) {
		f := strings.Split(line, ":")
		if len(f) != 7 {
			r.miss(n, line, "an account has seven fields")
			return
		}
		uid, err := strconv.Atoi(f[2])
		switch {
		case err != nil:
			r.miss(n, line, "its uid is not a number")
		case uid < 1000 || uid > 59999:
			r.miss(n, line, "it is an account of the system: packages make those")
		default:
			without := []string{"password, groups and keys: write user_crypt_passwd, user_groups, user_sshkeys"}
			if f[5] != "/home/"+f[0] {
				without = append(without, "its home "+f[5]+": a site makes /home/"+f[0])
			}
			if f[3] != f[2] {
				without = append(without, "its primary group "+f[3]+": a site makes one of its own")
			}
			if f[4] != "" {
				without = append(without, "its comment")
			}
			r.account(n, account{name: f[0], uid: f[2], shell: f[6], keys: []string{"Unmanaged"}, without: without})
		}
	})
}

// readPackages reads what dpkg --get-selections or apt-mark showmanual print.
func readPackages(r *reading) {
	r.lines("#", func(n int, line string) {
		f := strings.Fields(line)
		name, _, _ := strings.Cut(f[0], ":")
		switch {
		case len(f) > 2:
			r.miss(n, line, "it is not the name of a package")
			return
		case len(f) == 2 && f[1] != "install" && f[1] != "hold":
			r.miss(n, line, "it is not installed")
			return
		case len(f) == 2 && f[1] == "hold":
			r.take(n, line, "apt", "hold "+name, []string{"hold", appended}, name)
		}
		r.take(n, line, "apt", "package "+name, []string{"packages", appended}, map[string]any{"name": name})
	})
}

// unitDirectory is where a host has its own units.
const unitDirectory = "/etc/systemd/system/"

// readUnit takes a unit, or a drop-in for one.
func readUnit(r *reading) {
	_, below, found := strings.Cut(r.name, "systemd/system/")
	if !found {
		below = path.Base(r.name)
		if dir := path.Base(path.Dir(r.name)); strings.HasSuffix(dir, ".d") {
			below = dir + "/" + below
		}
	}
	r.unitFile(1, file{path: below, content: r.data})
}
