// SPDX-License-Identifier: Apache-2.0

package site

import (
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// module is one part of the configuration that has overrides of its own: for a
// node, exactly one target of it applies.
type module struct {
	name    string
	stanza  string // its key below overrides
	image   bool   // acts when a layer is baked; else on the node
	normal  func(*shape.Checker, *tree.Value) *tree.Value
	compile func(*confChecker, *tree.Value, *fragment)
}

// modules is every module. The order is that of reports; nothing else hangs on it.
var modules = []module{
	{"apparmor", "divingbell_apparmor", true, nil, (*confChecker).apparmor},
	{"apt", "divingbell_apt", true, nil, (*confChecker).apt},
	{"ethtool", "divingbell_ethtool", false, normalEthtool, (*confChecker).ethtool},
	{"exec", "divingbell_exec", false, normalExec, (*confChecker).exec},
	{"limits", "divingbell_limits", false, nil, (*confChecker).limits},
	{"mounts", "divingbell_mounts", false, nil, (*confChecker).mounts},
	{"perm", "divingbell_perm", true, normalPerm, (*confChecker).perm}, // of baked paths; the rest is on the node
	{"sysctl", "divingbell_sysctl", false, normalSysctl, (*confChecker).sysctl},
	{"uamlite", "divingbell_uamlite", true, nil, (*confChecker).uamlite},
	{"machine", "", false, nil, func(c *confChecker, v *tree.Value, f *fragment) { f.machine = machine.Compile(c.Checker, v) }},
}

// machineModule is the one whose overrides stand beside its values instead of in conf.
const machineModule = "machine"

// confChecker checks what modules are given, and knows of the site what it takes.
type confChecker struct {
	*shape.Checker
	layer bool     // the site bakes layers
	kept  []string // persisted paths
}

// fragment is what one target of one module compiles to; a module fills its own part.
type fragment struct {
	items    spec.Items
	packages spec.Packages
	accounts spec.Accounts
	appArmor spec.AppArmor
	baked    *spec.Perm
	machine  machine.Settings
}

// moduleNames are those of conf.
func moduleNames() []string {
	var out []string
	for _, m := range modules {
		if m.name != machineModule {
			out = append(out, m.name)
		}
	}
	return out
}

// modulesDoc is what conf and every override's conf may hold.
type modulesDoc struct {
	AppArmor     shape.Raw[appArmorDoc]                      `site:"apparmor" doc:"AppArmor profiles, baked into the layer"`
	Apt          shape.Raw[aptDoc]                           `site:"apt" doc:"packages, baked into the layer"`
	Ethtool      shape.Raw[shape.Map[shape.Map[shape.Flag]]] `site:"ethtool" doc:"offload features by interface"`
	Exec         shape.Raw[shape.Map[execDoc]]               `site:"exec" doc:"scripts, run in the order of their names"`
	Limits       shape.Raw[shape.Map[limitDoc]]              `site:"limits" doc:"lines of limits.conf(5)"`
	Mounts       shape.Raw[shape.Map[mountDoc]]              `site:"mounts" doc:"file systems"`
	Perm         shape.Raw[permShape]                        `site:"perm" doc:"owners and modes of paths"`
	Perms        shape.Raw[[]permPathDoc]                    `site:"perms" doc:"older shape of perm"`
	Sysctl       shape.Raw[shape.Map[shape.Text]]            `site:"sysctl" doc:"kernel parameters, in dot or slash spelling"`
	Uamlite      shape.Raw[uamliteDoc]                       `site:"uamlite" doc:"users, baked into the layer"`
	ChrootPath   shape.Text                                  `site:"chroot_mnt_path" doc:"accepted, without effect"`
	LogColors    shape.Flag                                  `site:"log_colors" doc:"accepted, without effect"`
	ExtraVerbose shape.Flag                                  `site:"extra_verbose" doc:"accepted, without effect"`
}
