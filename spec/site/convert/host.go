// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"path"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
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

// readModulesLoad reads modules-load.d(5): a module a line.
func readModulesLoad(r *reading) {
	r.lines("#;", func(n int, line string) {
		if strings.ContainsAny(line, " \t") {
			r.miss(n, line, "it is not the name of a module")
			return
		}
		r.loaded(n, line, line)
	})
}

// readModprobe reads modprobe.d(5).
func readModprobe(r *reading) {
	r.lines("#", func(n int, line string) {
		words := strings.Fields(line)
		if len(words) < 2 {
			r.miss(n, line, "it names no module")
			return
		}
		name := rules.ModuleName(words[1])
		switch words[0] {
		case "blacklist":
			r.take(n, line, "modules", "blacklist "+name, []string{"blacklist", appended}, name)
		case "options":
			for _, option := range words[2:] {
				r.moduleOption(n, line, name, option)
			}
			if len(words) == 2 {
				r.miss(n, line, "it has no options")
			}
		case "install", "remove":
			r.miss(n, line, "a site has no commands for modules: blacklist keeps one from loading by itself, and module_blacklist=NAME in layer.kernel.args from loading at all")
		default:
			r.miss(n, line, words[0]+" has no counterpart in a site: a file below /etc/modprobe.d in conf.files has it")
		}
	})
}
