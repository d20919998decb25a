// SPDX-License-Identifier: Apache-2.0

package module

import (
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Module is one part of the configuration that has overrides of its own: for a
// node, exactly one target of it applies.
type Module struct {
	Name    string
	Stanza  string // its key below overrides
	Image   bool   // acts when a layer is baked; else on the node
	Normal  func(*shape.Checker, *tree.Value) *tree.Value
	Compile func(*Checker, *tree.Value, *Fragment)
}

// All is every module. The order is that of reports; nothing else hangs on it.
var All = []Module{
	{"apparmor", "divingbell_apparmor", true, nil, (*Checker).apparmor},
	{"apt", "divingbell_apt", true, nil, (*Checker).apt},
	{"ethtool", "divingbell_ethtool", false, normalEthtool, (*Checker).ethtool},
	{"exec", "divingbell_exec", false, normalExec, (*Checker).exec},
	{"limits", "divingbell_limits", false, nil, (*Checker).limits},
	{"mounts", "divingbell_mounts", false, nil, (*Checker).mounts},
	{"perm", "divingbell_perm", true, normalPerm, (*Checker).perm}, // of baked paths; the rest is on the node
	{"sysctl", "divingbell_sysctl", false, normalSysctl, (*Checker).sysctl},
	{"uamlite", "divingbell_uamlite", true, nil, (*Checker).uamlite},
	{"machine", "", false, nil, func(c *Checker, v *tree.Value, f *Fragment) { f.Machine = machine.Compile(c.Checker, v) }},
}

// Machine is the one whose overrides stand beside its values instead of in conf.
const Machine = "machine"

// Checker checks what modules are given, and knows of the site what it takes.
type Checker struct {
	*shape.Checker
	Layer bool     // the site bakes layers
	Kept  []string // persisted paths
}

// Fragment is what one target of one module compiles to; a module fills its own part.
type Fragment struct {
	Items    spec.Items
	Packages spec.Packages
	Accounts spec.Accounts
	AppArmor spec.AppArmor
	Baked    *spec.Perm
	Machine  machine.Settings
}

// Names are those of conf.
func Names() []string {
	var out []string
	for _, m := range All {
		if m.Name != Machine {
			out = append(out, m.Name)
		}
	}
	return out
}

// ModulesDoc is what conf and every override's conf may hold.
type ModulesDoc struct {
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
