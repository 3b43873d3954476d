// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A character device with the numbers of NVIDIA's (major 195) whose close and ioctl can be made to hang.
 *
 * It knows nothing of GPUs. In the guest it is loaded as "nvidia", so that kernel stacks carry that module
 * name; its own functions keep names of their own, so that no stack passes for one of the real driver's.
 *
 *   in_release  0 lets the last close through, 1 spins in it (state R), 2 sleeps uninterruptibly (state D)
 *   in_ioctl    0 lets an ioctl through, 1 sleeps uninterruptibly in it
 *
 * Writing 0 to a parameter lets go, at once, whoever is caught there.
 */
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/wait.h>

#define STAND_IN_MAJOR 195
#define SPIN 1
#define SLEEP 2

static DECLARE_WAIT_QUEUE_HEAD(stand_in_queue);
static int in_release;
static int in_ioctl;

/* A waiter must not have to look again by itself: a sleep that wakes now and then moves, and is not stuck. */
static int stand_in_set(const char *text, const struct kernel_param *param)
{
	int failed = param_set_int(text, param);

	wake_up_all(&stand_in_queue);
	return failed;
}

static const struct kernel_param_ops stand_in_ops = {
	.set = stand_in_set,
	.get = param_get_int,
};
module_param_cb(in_release, &stand_in_ops, &in_release, 0644);
module_param_cb(in_ioctl, &stand_in_ops, &in_ioctl, 0644);

static noinline void stand_in_spin(void)
{
	while (READ_ONCE(in_release) == SPIN) {
		cond_resched();
		cpu_relax();
	}
}

static noinline void stand_in_sleep(int *while_set, int value)
{
	wait_event(stand_in_queue, READ_ONCE(*while_set) != value);
}

static int stand_in_open(struct inode *inode, struct file *file)
{
	return 0;
}

static int stand_in_release(struct inode *inode, struct file *file)
{
	stand_in_spin();
	stand_in_sleep(&in_release, SLEEP);
	return 0;
}

static long stand_in_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	stand_in_sleep(&in_ioctl, 1);
	return 0;
}

static const struct file_operations stand_in_file = {
	.owner = THIS_MODULE,
	.open = stand_in_open,
	.release = stand_in_release,
	.unlocked_ioctl = stand_in_ioctl,
};

static int __init stand_in_load(void)
{
	return register_chrdev(STAND_IN_MAJOR, "nvidia", &stand_in_file);
}

static void __exit stand_in_unload(void)
{
	unregister_chrdev(STAND_IN_MAJOR, "nvidia");
}

module_init(stand_in_load);
module_exit(stand_in_unload);
MODULE_DESCRIPTION("A device that can be made to hang, for tests of reclaimerd");
MODULE_LICENSE("Dual MIT/GPL");
