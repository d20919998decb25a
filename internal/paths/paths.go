// SPDX-License-Identifier: Apache-2.0

// Package paths is the one table of fixed paths and unit names. A path that two
// packages must agree on stands here and nowhere else. It imports nothing.
package paths

// In the loader's initramfs.
const (
	Bootstrap   = "/etc/caisson/site.json"    // spec.Bootstrap, from site.cpio
	ModulesDir  = "/lib/modules"              // <release>/modules.dep, modules.alias and *.ko
	ModulesLoad = "/lib/caisson/modules-load" // module names loaded always, one a line
	Mke2fs      = "/usr/sbin/mke2fs"          // where the site asks for it, as in the layer
	Busybox     = "/usr/bin/busybox"          // where the layer has it: the shell of who is let in, see bootagent/rescue
	E2fsck      = "/usr/sbin/e2fsck"
	Measured    = "/etc/caisson/measured" // of a loader behind a kexec: what RunMeasured was before it
	Unlocked    = "/etc/caisson/unlocked" // of such a loader: what RunUnlocked was
)

// DiskPrograms are those that a loader makes and repairs a state disk with.
var DiskPrograms = []string{Mke2fs, E2fsck}

// On a running node; /run/caisson survives switch_root.
const (
	Run          = "/run/caisson"
	RunBootstrap = "/run/caisson/site.json"
	RunBoot      = "/run/caisson/boot.json"   // what the initramfs stage decided
	RunDisk      = "/run/caisson/disk"        // the state disk, as the loader mounts it
	RunImages    = "/run/caisson/images"      // mounted images, one directory a layer
	RunUpper     = "/run/caisson/upper"       // tmpfs with the overlay's upper and work
	RunStore     = "/run/caisson/store"       // when there is no state disk
	RunMedium    = "/run/caisson/medium"      // a medium that carries a layer, while the loader reads it
	RunServices  = "/run/caisson/service"     // mounted images of services, one directory a service
	RunAccounts  = "/run/caisson/accounts"    // what layers change of the accounts of this root, one file a layer
	RunRescue    = "/run/caisson/rescue.json" // who is let in, for root alone, see bootagent/rescue
	RunLetIn     = "/run/caisson/letin"       // and processes that end with it, see bootagent/rescue/letin
	RunDeadline  = "/run/caisson/deadline"    // there while a new generation is unproven, see bootagent/boot/handover
	RunNext      = "/run/caisson/next"        // mounted parts of the root that a soft-reboot leads to
	NextRoot     = "/run/nextroot"            // where systemd looks for that root, see systemd-soft-reboot.service(8)
	RootBoot     = "/etc/caisson/boot.json"   // in such a root: its record, see record.Load
	RootUpper    = "/etc/caisson/upper"       // in such a root: what RunUpper is in others
	Early        = "/etc/caisson/early"       // in a root that EarlyService has something to do in
	Remote       = "/etc/caisson/remote"      // in one that RemoteService has, with the targets of its mounts
	RunMeasured  = "/run/caisson/measured"    // what the TPM was told, see bootagent/tpm
	RunUnlocked  = "/dev/caisson"             // a ramfs with keys of secrets that a loader opened: no mount below /run outlives a soft-reboot
	RunHung      = "/run/caisson/tpm-hung"    // there once the TPM has not answered in this boot
	RunStatus    = "/run/caisson/status.json"
	RunMetrics   = "/run/caisson/metrics.prom"
	RunTrace     = "/run/caisson/trace.json"
	RunLock      = "/run/caisson/lock"
	RunDecisions = "/run/caisson/decisions.jsonl" // where the command line asks for them, see bootagent/tell/events
	RunStaged    = "/run/caisson/staged.json"     // what was fetched for the next boot
	RunStaging   = "/run/caisson/staging.lock"    // held while a layer is fetched for the next boot
	State        = "/var/lib/caisson"             // state disk or tmpfs
	StateLabel   = "caisson-state"                // GPT partition name
	Credentials  = "registry"                     // below State: what a registry asks of this node, see bootagent/record/track
	// below State: what opens secrets that are sealed to this node, see bootagent/items/secrets
	SecretsKey  = "identity/secrets.key"
	SecretsNext = "identity/secrets.next.key" // the key that takes its place once an overlay that is sealed to it has proved itself
	Reports     = "report"                    // below State: reports of this node, see bootagent/tell/post
	Corrections = "corrections.json"          // below State: which settings were corrected lately, see bootagent/node/policy
)

// What is known of a change that has not proved itself, and the output of the commands
// that it is judged by; see bootagent/sense/gate.
const (
	RunState   = "/run/caisson/state.json" // the state, while the disk takes no writes
	RunGates   = "/run/caisson/gates.json"
	RunJudged  = "/run/caisson/judged" // until when the agent is to look again, see bootagent/sense/uptime
	RunChecks  = "/run/caisson/gates"
	RunWatched = "/run/caisson/watched.json"
)

// Of media that 'caisson image' makes.
const (
	ImageDisk    = "63616973-736f-4e2d-8000-696d61676521" // identifier of a partition table that no machine has made its own yet
	ImageState   = "63616973-736f-4e2d-8000-696d61676522" // the same of its state partition, and of the file system in it
	BootLabel    = "caisson"                              // GPT name of the partition that firmware starts from
	MediumLabel  = "CAISSON"                              // of the file system that firmware starts from
	RescueLabel  = "CAISSON-RESCUE"                       // of a CD, or a stick written as one, with a statement to let an operator in
	RescueFile   = "RESCUE"                               // the statement in it
	MediumLayout = "caisson"                              // an OCI layout in it, where a medium carries a layer
)

// By which people and programs such as kured learn that a machine is to be started over.
const (
	RebootRequired = "/run/reboot-required"
	RebootReasons  = "/run/reboot-required.pkgs" // one a line
)

// In the layer.
const (
	Agent         = "/usr/lib/caisson/caisson-agent"
	AppArmorDir   = "/usr/lib/caisson/apparmor" // compiled profiles
	AgentService  = "caisson-agent.service"
	EarlyService  = "caisson-early.service"
	RemoteService = "caisson-remote.service"
	SetEarly      = "set-early"                  // the agent's argument in it
	SetRemote     = "set-remote"                 // and in RemoteService
	SoftReboot    = "caisson-soft-reboot.target" // leads to the root at NextRoot
	StackNext     = "stack-next-root"            // the agent's argument in the service that makes that root
	NoteDeadline  = "note-deadline"              // the agent's argument where a new generation did not prove itself in time
	// the agent's argument where it is asked for that, with the seconds that a generation has beside
	// its scripts
	DeadlineOver = "deadline-over"
	JudgedTimer  = "caisson-judged.timer"       // asks whether the agent looks at what is judged
	JudgedOver   = "judged-over"                // the agent's argument where that is asked
	RescueKeys   = "rescue-keys"                // the agent's argument where sshd asks for keys of who is let in
	RescueShell  = "rescue-shell"               // and where such a key begins a session
	KeysDir      = "/etc/ssh/authorized_keys.d" // one file a user, sshd's AuthorizedKeysFile names it
)

// Prefix of every file that caisson writes into a directory it shares with others.
const Prefix = "60-caisson-"
