#include <launch/record/energy_counters.hpp>
#include <launch/record/provenance.hpp>

#include <gtest/gtest.h>
#include <support/temp_directory.hpp>

#include <cmath>

namespace maniple {
namespace {

TEST(Provenance, KeepsNoSecret) {
  for (const char* name :
       {"SLURM_JOB_ID", "OMPI_MCA_btl", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})
    EXPECT_TRUE(is_recorded(name)) << name;
  for (const char* name : {"SLURM_JWT", "HF_TOKEN", "SLURM_TOKEN", "OMPI_PASSWORD", "NCCL_KEY",
                           "FI_CREDENTIALS", "UCX_SECRET", "PATH", "HOME", "AWS_ACCESS_KEY_ID"})
    EXPECT_FALSE(is_recorded(name)) << name;
  const Texts texts =
      machine_provenance({"SLURM_JOB_ID=7", "SLURM_JWT=abc", "HF_TOKEN=abc", "OMP_NUM_THREADS=2"});
  EXPECT_EQ(texts.at("environment"), "OMP_NUM_THREADS=2\nSLURM_JOB_ID=7");
  for (const char* name :
       {"version", "git_commit", "compiler", "mpi", "hdf5", "cpu_model", "kernel", "command_line"})
    EXPECT_FALSE(texts.at(name).empty()) << name;
}

TEST(EnergyCounters, ReadCraysCounterOfTheNode) {
  const TempDirectory root;
  root.write("sys/cray/pm_counters/energy", "1000 J 1234567 us\n");
  EnergyCounters energy(root.path());
  EXPECT_EQ(energy.joules(), 0);
  root.write("sys/cray/pm_counters/energy", "1250 J 1234568 us\n");
  EXPECT_EQ(energy.joules(), 250);
}

TEST(EnergyCounters, AddThePackagesOfRaplWhichWrap) {
  const TempDirectory root;
  const auto set = [&](const char* package, const char* microjoules) {
    root.write(std::string("sys/class/powercap/") + package + "/max_energy_range_uj", "5000000\n");
    root.write(std::string("sys/class/powercap/") + package + "/energy_uj", microjoules);
  };
  set("intel-rapl:0", "4000000\n");
  set("intel-rapl:1", "0\n");
  set("intel-rapl:0:0", "0\n");     // a part of package 0
  set("intel-rapl-mmio:0", "0\n");  // package 0 again
  EnergyCounters energy(root.path());
  set("intel-rapl:0", "1000000\n");
  set("intel-rapl:1", "3000000\n");
  set("intel-rapl:0:0", "3000000\n");
  EXPECT_DOUBLE_EQ(energy.joules(), 2 + 3);
}

TEST(EnergyCounters, AreNotKnownWhereOneCannotBeRead) {
  const TempDirectory none;
  EXPECT_TRUE(std::isnan(EnergyCounters(none.path()).joules()));
  const TempDirectory one;
  one.write("sys/class/powercap/intel-rapl:0/energy_uj", "1\n");
  std::filesystem::create_directories(one / "sys/class/powercap/intel-rapl:1");
  EXPECT_TRUE(std::isnan(EnergyCounters(one.path()).joules()));
}

}  // namespace
}  // namespace maniple
